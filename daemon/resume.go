package daemon

import (
	"encoding/json"
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// itemResult is what a line of the item file says of the item itself.
type itemResult struct {
	Item     int    `json:"item"`
	Run      int    `json:"run"`
	OK       bool   `json:"ok"`
	Step     string `json:"step"`
	Filename string `json:"filename"`
	// Base64 is the name where it is not UTF-8.
	Base64 []byte `json:"filename_base64"`
}

func (i itemResult) name() string {
	if i.Base64 != nil && !utf8.Valid(i.Base64) {
		return string(i.Base64)
	}
	return i.Filename
}

// inherit takes over the item results of earlier runs, and of an earlier daemon, calls note for each, and says in the log how many there
// are, unless the run has begun before.
func (r *run) inherit(note func(itemResult)) error {
	if r.number < 2 && r.retryOf == nil && !r.adopted {
		return nil
	}
	if err := readItems(r.eachItem, &r.report, r.counts, func(result itemResult) {
		if !r.adopted || result.Run != r.number {
			r.inherited++
		}
		note(result)
	}); err != nil {
		return &workError{code: "start_failed", err: err}
	}
	if r.adopted {
		processed, failed := r.report.counts()
		r.said(int64(processed+failed), r.report.total, "")
		return nil
	}
	if r.inherited > 0 {
		items := "items"
		if r.inherited == 1 {
			items = "item"
		}
		r.line(fmt.Sprintf("  Goes on after %d finished %s.", r.inherited, items))
		r.said(int64(r.inherited), nil, "")
	}
	return nil
}

// itemsOf reads the item results of an operation.
func itemsOf(owner *statefs.Owner, id statefs.ID) func(func(line []byte) error) error {
	return func(each func(line []byte) error) error { return owner.ReadItems(id, each) }
}

func (d *Daemon) itemsOf(id statefs.ID) func(func(line []byte) error) error {
	return itemsOf(d.owner, id)
}

// countsIn returns what says whether an item result counts for a record: not when the step is done again as a whole, nor, when it failed, once the attempt
// has.
func countsIn(rec *statefs.Record) func(itemResult) bool {
	return func(result itemResult) bool {
		if result.Step == "" {
			return result.OK || result.Run >= rec.RedoFrom
		}
		s := steps.Find(rec.Steps, result.Step)
		return s == nil || result.Run >= s.ItemsFrom && (result.OK || result.Run >= s.RedoFrom)
	}
}

// counts says whether an item result counts for the run.
func (r *run) counts(result itemResult) bool {
	return result.Step == r.step.name() && countsIn(&statefs.Record{RedoFrom: r.redoFrom, Steps: r.step.list})(result)
}

// readItems takes the item results of an operation into a report, and calls note for each. A line that is not what the daemon writes
// is passed over: a person may have put it there. So is one that does not count.
func readItems(each func(func(line []byte) error) error, into *report, counts func(itemResult) bool, note func(itemResult)) error {
	return each(func(line []byte) error {
		var result itemResult
		fields, err := decodeFields(line)
		if err != nil || json.Unmarshal(line, &result) != nil || result.Item < 1 || !counts(result) {
			return nil //nolint:nilerr // see above
		}
		entry := fields[:0]
		for _, f := range fields {
			if f.name != "item" && f.name != "run" && f.name != "ok" && f.name != "step" {
				entry = append(entry, f)
			}
		}
		into.inherit(result.OK, object(entry))
		note(result)
		return nil
	})
}

// earlierReport is the report of an operation that ends without a run in hand: what its earlier runs have finished.
func (d *Daemon) earlierReport(op *operation) *report {
	if len(op.rec.Steps) > 0 {
		return d.stepsReport(op)
	}
	rep := new(report)
	if op.rec.Starts == 0 && op.rec.RetryOf == nil {
		return rep
	}
	def, params, err := d.definition(op.rec)
	if err != nil || def.Work() != catalog.WorkItems {
		return rep // a handler may have done its items again in each run
	}
	rep.total = def.Total(params)
	if err := readItems(d.itemsOf(op.id()), rep, countsIn(op.rec), func(itemResult) {}); err != nil {
		d.logger.Error("item results of earlier runs are not in the footer", "id", op.id(), "error", err)
	}
	return rep
}

func (r *report) inherit(ok bool, entry json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ok {
		r.processed++
		r.processedList = appendListed(r.processedList, entry)
		return
	}
	r.failed++
	r.failedList = appendListed(r.failedList, entry)
}

// onlyFailed returns the names of the items that failed in the operation which this one repeats, nil when all are to be done.
func (r *run) onlyFailed() (finishedNames, error) {
	if r.retryOf == nil || !r.failedOnly {
		return nil, nil
	}
	names := make(finishedNames)
	old, err := r.owner.ReadRecord(*r.retryOf)
	if err != nil {
		return nil, &workError{code: "start_failed", err: err}
	}
	if err := readItems(itemsOf(r.owner, *r.retryOf), new(report), countsIn(old), func(result itemResult) {
		if !result.OK && result.Step == r.step.name() {
			names.note(result)
		}
	}); err != nil {
		return nil, &workError{code: "start_failed", err: err}
	}
	return names, nil
}

// finishedNames are the items that earlier runs have finished, by name: files may have come or gone since, which changes the numbers.
// Several items may have one name.
type finishedNames map[string]int

func (f finishedNames) note(result itemResult) { f[result.name()]++ }

// take reports whether an item of this name is finished, and counts it off.
func (f finishedNames) take(name string) bool {
	if f[name] == 0 {
		return false
	}
	f[name]--
	return true
}

// Finished reports whether an earlier run of this operation has finished an item of this name, so that the work need not be done
// again; the result stands in the footer. Where several items have one name, each call is about the next of them: ask once for each
// item, before it is begun. The first call takes the results of earlier runs over. A handler that never calls it does all of its work in
// each run.
func (o *Op) Finished(name string) bool {
	e := &o.r.earlier
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.names == nil {
		e.names = make(finishedNames)
		var err error
		if e.only, err = o.r.onlyFailed(); err == nil {
			err = o.r.inherit(e.names.note)
		}
		if err != nil {
			o.r.end(err)
		}
	}
	return e.names.take(name) || e.only != nil && !e.only.take(name)
}

// earlierItems are the items that earlier runs have finished, for a handler that asks.
type earlierItems struct {
	mu    sync.Mutex
	names finishedNames // nil until it asks
	only  finishedNames // nil when all are to be done
}
