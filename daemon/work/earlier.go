package work

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// itemResult holds the fields of a line in the item file that describe the item itself.
type itemResult struct {
	Item     int    `json:"item"`
	Run      int    `json:"run"`
	OK       bool   `json:"ok"`
	Step     string `json:"step"`
	Filename string `json:"filename"`
	// Base64 is the name if it is not UTF-8.
	Base64 []byte `json:"filename_base64"`
}

func (i itemResult) name() string {
	if i.Base64 != nil && !utf8.Valid(i.Base64) {
		return string(i.Base64)
	}
	return i.Filename
}

// inherit adds the item results of earlier runs, and of an earlier daemon, to the report and calls
// note for each. It logs how many items earlier runs finished, unless this run was adopted.
func (r *Run) inherit(note func(itemResult)) error {
	if r.number < 2 && r.retryOf == nil && !r.adopted {
		return nil
	}
	inherited := 0
	if err := readItems(r.host.Owner, r.id, r.optionalStepName(), &r.report, r.resultCounts, func(result itemResult) {
		if !r.adopted || result.Run != r.number {
			inherited++
		}
		note(result)
	}); err != nil {
		return &Error{Code: "start_failed", Err: err}
	}
	if r.adopted {
		done, total := r.report.done()
		r.setProgress(done, total, "")
		return nil
	}
	if inherited > 0 {
		items := "items"
		if inherited == 1 {
			items = "item"
		}
		r.logLine(fmt.Sprintf("  Goes on after %d finished %s.", inherited, items))
		r.setProgress(int64(inherited), nil, "")
	}
	return nil
}

// countsIn returns a function that reports whether an item result counts for a record. A result
// does not count if its whole step is done again. A failure does not count once its attempt has
// failed.
func countsIn(rec *statefs.Record) func(itemResult) bool {
	return func(result itemResult) bool {
		if result.Step == "" {
			return result.OK || result.Run >= rec.RedoFrom
		}
		s := steps.Find(rec.Steps, result.Step)
		return s == nil || result.Run >= s.ItemsFrom && (result.OK || result.Run >= s.RedoFrom)
	}
}

// resultCounts reports whether an item result counts for the run.
func (t *task) resultCounts(result itemResult) bool {
	return result.Step == t.step.name() && countsIn(&statefs.Record{RedoFrom: t.redoFrom, Steps: t.step.list})(result)
}

// readItems adds the item results of an operation, or of one of its optional steps, to a report and calls note for
// each. It skips results that do not count, and lines that the daemon did not write: a person may have edited the
// file.
func readItems(owner *statefs.Owner, id statefs.ID, optionalStep string, into *Report, counts func(itemResult) bool,
	note func(itemResult),
) error {
	return owner.ReadItems(id, optionalStep, func(line []byte) error {
		var result itemResult
		fields, err := decodeFields(line)
		if err != nil || json.Unmarshal(line, &result) != nil || result.Item < 1 || !counts(result) {
			return nil //nolint:nilerr // skipped, as documented
		}
		entry := fields[:0]
		for _, f := range fields {
			if f.name != "item" && f.name != "run" && f.name != "ok" && f.name != "step" {
				entry = append(entry, f)
			}
		}
		into.count(result.OK, object(entry))
		note(result)
		return nil
	})
}

// AddItems adds the item results of an operation that count.
func (r *Report) AddItems(owner *statefs.Owner, rec *statefs.Record) error {
	return readItems(owner, rec.ID, "", r, countsIn(rec), func(itemResult) {})
}

// AddOutputs adds the outputs of steps as the result of the work.
func (r *Report) AddOutputs(list []steps.Step) {
	for _, s := range list {
		for _, name := range slices.Sorted(maps.Keys(s.Outputs)) {
			r.setField(field{name, s.Outputs[name]})
		}
	}
}

// failedNames returns the names of the items that failed in the operation that this one retries,
// nil if all items are to be done.
func (t *task) failedNames() (finishedNames, error) {
	if t.retryOf == nil || !t.failedOnly {
		return nil, nil
	}
	names := make(finishedNames)
	old, err := t.host.Owner.ReadRecord(*t.retryOf)
	if err != nil {
		return nil, &Error{Code: "start_failed", Err: err}
	}
	if err := readItems(t.host.Owner, *t.retryOf, "", new(Report), countsIn(old), func(result itemResult) {
		if !result.OK && result.Step == t.step.name() {
			names.add(result)
		}
	}); err != nil {
		return nil, &Error{Code: "start_failed", Err: err}
	}
	return names, nil
}

// finishedNames counts the items that earlier runs finished, by name. Numbers would not do, because
// they change when files are added or removed. Several items may share a name.
type finishedNames map[string]int

func (f finishedNames) add(result itemResult) { f[result.name()]++ }

// take reports whether an item of this name is finished, and counts it off.
func (f finishedNames) take(name string) bool {
	if f[name] == 0 {
		return false
	}
	f[name]--
	return true
}
