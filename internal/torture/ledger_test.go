package torture

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// ledger holds what was acknowledged. It is safe for concurrent use.
type ledger struct {
	mu      sync.Mutex
	ops     map[statefs.ID]*acknowledged
	highest uint64 // number in an ID
	answers int
	// unwritten means that a command may find no space for its own output, and fail because of that.
	unwritten bool
}

// acknowledged is what one client knows about an operation. Only one goroutine at a time makes requests for
// the same operation.
type acknowledged struct {
	job       string
	unwritten bool
	// wants is the last request, if it was acknowledged; "" if there was none, or its answer was lost.
	wants statefs.Action
	// cancelled means that a cancel may have been requested, acknowledged or not.
	cancelled bool
	// end is the first terminal record that the client read.
	end *statefs.Record
	// history are the requests with their times, for the message of a failure.
	history []string
}

func newLedger() *ledger { return &ledger{ops: make(map[statefs.ID]*acknowledged)} }

// submitted records an acknowledged submit. A repeated number is an error.
func (l *ledger) submitted(id statefs.ID, job string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers++
	if l.ops[id] != nil {
		return fmt.Errorf("%s was given twice", id)
	}
	for other := range l.ops {
		if other.Sequence() == id.Sequence() {
			return fmt.Errorf("%s has the number of %s", id, other)
		}
	}
	l.highest = max(l.highest, id.Sequence())
	l.ops[id] = &acknowledged{job: job, unwritten: l.unwritten}
	return nil
}

// knows reports whether the submit of an operation was acknowledged.
func (l *ledger) knows(id statefs.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ops[id] != nil
}

// requested records a request whose answer arrived, or was lost.
func (l *ledger) requested(id statefs.ID, ask statefs.Action, answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	op := l.ops[id]
	op.history = append(op.history, fmt.Sprintf("%s %s answered %t", time.Now().Format("15:04:05.000000"), ask, answered))
	op.wants = ""
	if answered {
		l.answers++
		op.wants = ask
	}
	op.cancelled = op.cancelled || ask == statefs.Cancel
}

// each calls visit for every acknowledged operation.
func (l *ledger) each(visit func(id statefs.ID, op *acknowledged)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, op := range l.ops {
		visit(id, op)
	}
}

// checkDead checks a storage after a crash, without a daemon. After any crash it contains no torn file under
// a final name, and nothing that contradicts an acknowledgement. It returns the violations.
func (l *ledger) checkDead(dir string) error {
	tree, err := statefs.Open(dir, statefs.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }() // opened for reading
	lines, err := left(dir)
	if err != nil {
		return err
	}
	var errs []error
	wrong := func(id statefs.ID, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", id, fmt.Errorf(format, args...)))
	}
	l.each(func(id statefs.ID, op *acknowledged) {
		rec, err := tree.ReadRecord(id)
		if err != nil {
			wrong(id, "the record of an acknowledged operation: %w", err)
			return
		}
		sight, err := tree.ObserveAll(id)
		switch {
		case err != nil:
			wrong(id, "look: %w", err)
		case lines[id] != nil: // the next start brings the marker up to the journal
		case len(sight.States) > 1:
			wrong(id, "it has the markers %q", sight.States)
		case rec.Status.Live() && len(sight.States) == 0:
			wrong(id, "it is live (%s) and has no marker", rec.Status)
		}
		if err := op.checkEnd(rec); err != nil {
			wrong(id, "%w", err)
		}
	})
	return errors.Join(errs...)
}

// checkEnd compares a terminal record with the first one.
func (op *acknowledged) checkEnd(rec *statefs.Record) error {
	if op.end != nil && (rec.Status != op.end.Status || rec.Result != op.end.Result ||
		rec.FinishedSeq != op.end.FinishedSeq ||
		string(rec.Footer) != string(op.end.Footer) || !rec.FinishedAt.Equal(*op.end.FinishedAt)) {
		return fmt.Errorf("it had ended with %s %s at %s, and now says %s %s %v",
			op.end.Status, op.end.Footer, op.end.FinishedAt, rec.Status, rec.Footer, rec.FinishedAt)
	}
	if op.end == nil && rec.Status.Terminal() {
		op.end = rec
	}
	if rec.Status == statefs.Cancelled && !op.cancelled {
		return fmt.Errorf("it is cancelled, and nobody asked for that: %q", rec.Reason)
	}
	if rec.Status == statefs.Failed && !op.mayFail(rec) {
		return fmt.Errorf("it failed: %+v", rec.Error)
	}
	return nil
}

// mayFail reports whether a failure is expected: a command whose output cannot be written fails with an exit
// code.
func (op *acknowledged) mayFail(rec *statefs.Record) bool {
	return op.unwritten && rec.Error != nil && rec.Error.Code == "exit_code"
}

// checkRecords parses every record as plain JSON, acknowledged or not.
func checkRecords(dir string) error { return checkRecordsBut(dir, nil) }

// checkRecordsBut is checkRecords without some operations.
func checkRecordsBut(dir string, but map[statefs.ID]bool) error {
	lines, err := left(dir)
	if err != nil {
		return err
	}
	var errs []error
	names, err := filepath.Glob(filepath.Join(dir, "operations", "*", "*.json"))
	for _, path := range names {
		id, failed := statefs.ParseID(strings.TrimSuffix(filepath.Base(path), ".json"))
		if failed == nil && (but[id] || lines[id] != nil) { // the next start writes it again
			continue
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // a running daemon may have swept what is left of a submit that was cut off
		}
		if err != nil {
			return err
		}
		var rec struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(data, &rec); err != nil || rec.ID+".json" != filepath.Base(path) {
			errs = append(errs, fmt.Errorf("record %s is torn: %q: %w", path, data, err))
		}
	}
	return errors.Join(append(errs, err)...)
}

// checkEffects compares the effects of the commands with the records: no run starts twice, and no run starts
// that its record does not contain, so that queued means not started.
func (r *rig) checkEffects(tree *statefs.Tree) error {
	if journaled() {
		return eventually(func() error { return r.compareEffects(tree) }) // while a daemon runs, record files follow
	}
	return r.compareEffects(tree)
}

func (r *rig) compareEffects(tree *statefs.Tree) error {
	data, err := os.ReadFile(r.effects)
	if err != nil {
		return err
	}
	var errs []error
	seen := make(map[string]bool)
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) != 3 {
			return fmt.Errorf("effect %q", line)
		}
		if key := words[0] + " " + words[1]; seen[key] && !(r.cuts && strings.Contains(words[1], "/")) {
			// unsynced results are computed again
			errs = append(errs, fmt.Errorf("%s begins twice", key))
		} else {
			seen[key] = true
		}
		id, err := statefs.ParseID(words[0])
		if err != nil {
			return err
		}
		number, _, _ := strings.Cut(words[1], "/")
		run, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		rec, err := tree.ReadRecord(id)
		if err != nil || rec.Run < run {
			errs = append(errs, fmt.Errorf("%s has begun run %d, and its record does not say so: %+v, %w", id, run, rec, err))
		}
	}
	return errors.Join(errs...)
}

// wantEmpty fails the test when one of these folders of the storage holds anything.
func wantEmpty(t *testing.T, dir string, folders ...string) {
	t.Helper()
	for _, folder := range folders {
		entries, err := os.ReadDir(filepath.Join(dir, folder))
		must(t, err)
		if names := slices.Collect(func(yield func(string) bool) {
			for _, e := range entries {
				if !yield(e.Name()) {
					return
				}
			}
		}); len(names) > 0 {
			t.Errorf("%s/ holds %q", folder, names)
		}
	}
}
