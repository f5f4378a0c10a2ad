package daemon

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// TestLiveIndexAgreesWithMarkers changes operations in every way, also by moving markers. For each
// marker, lists must have the right row or know that it is unsettled.
func TestLiveIndexAgreesWithMarkers(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	id := func(n int) statefs.ID { // runs for an hour
		id := b.submit("wait", "{}")
		b.awaitState(id, statefs.Running)
		b.sure(n)
		return id
	}
	first, second, third := id(1), id(2), id(3)
	b.touch(first, statefs.Pause)
	b.awaitState(first, statefs.Paused)
	b.mv(statefs.MarkerName(second, statefs.Running), statefs.MarkerName(second, statefs.Paused))
	stranger, err := statefs.MakeID("other-thing", time.Now(), os.Getppid(), 900_000)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(stranger, statefs.Running)), nil, 0o640))
	b.sure(4)
	if _, unsettled, _, _ := b.daemon.LiveIndex(); len(unsettled) == 0 {
		t.Error("of the foreign operation nobody would hear")
	}
	b.touch(third, statefs.Cancel)
	b.awaitEnd(third)
	b.sure(3)
	must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(stranger, statefs.Running))))
	b.sure(2)
	must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(first, statefs.Paused))))
	b.awaitEnd(first)
	b.awaitEnd(b.submit("count", "{}"))
	b.sure(1)
	b.touch(second, statefs.Cancel)
	b.awaitEnd(second)
	b.sure(0)
}

// sure waits until the live index agrees with a listing that has this many markers.
func (b *bench) sure(markers int) {
	b.t.Helper()
	b.poll("lists know every marker", func() bool {
		rows, unsettled, _, ok := b.daemon.LiveIndex()
		listing, err := b.tree.List()
		must(b.t, err)
		if !ok || len(listing.Markers) != markers {
			return false
		}
		doubtful, known := make(map[statefs.ID]bool), rows.Len()
		for _, l := range unsettled {
			doubtful[l.ID] = true
			if l.Row != nil {
				known--
			}
		}
		for _, m := range listing.Markers {
			if doubtful[m.ID] {
				continue
			}
			_, s := b.daemon.live.Get(m.ID)
			if s == nil {
				return false // its event is on the way
			}
			row, err := s.Row.Unpack()
			must(b.t, err)
			if row.Status != m.State {
				return false
			}
			known--
		}
		return known == 0
	})
}

// A submit that has returned is in the next list, although the event of its marker may be on the way.
func TestListsKnowEachAnsweredSubmit(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	b.awaitEnd(b.submit("count", "{}")) // the daemon is ready
	for range 50 {
		id := b.submit("wait", "{}")
		_, unsettled, _, ok := b.daemon.LiveIndex()
		_, shown := b.daemon.live.Get(id)
		known := shown != nil || slices.ContainsFunc(unsettled, func(l history.Live) bool { return l.ID == id })
		if !ok || !known {
			t.Fatalf("%s is not listed", id)
		}
	}
}

// TestForeignMarkerIsReadOnce checks what the daemon knows of a foreign marker after its first reconcile: its
// state, unless that may have changed, and that it has no record to read.
func TestForeignMarkerIsReadOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	parent := b.submit("count", "{}")
	rec := b.awaitEnd(parent)
	stranger, err := statefs.MakeID("other-thing", time.Now(), os.Getppid(), 900_000)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(stranger, statefs.Paused)), nil, 0o640))
	known := func() (state statefs.State) {
		_, unsettled, _, _ := b.daemon.LiveIndex()
		for _, l := range unsettled {
			if l.ID == stranger && l.Row == nil {
				return l.State
			}
		}
		return ""
	}
	b.poll("the state of the foreign marker is known", func() bool { return known() == statefs.Paused })
	rec.ID, rec.After = stranger, []statefs.ID{parent}
	must(t, b.daemon.owner.WriteRecord(rec))
	b.daemon.owner.Journal.Seen(stranger)
	b.awaitFiles()
	guards, err := b.daemon.retentionGuards()
	must(t, err)
	if len(guards.Referred) > 0 {
		t.Errorf("the record is read: %v", guards.Referred)
	}
	must(t, os.Remove(b.tree.RecordPath(stranger)))
	b.daemon.reconcileQueue.enqueueAfter(stranger, time.Hour)
	if state := known(); state != "" {
		t.Errorf("a reconcile is due and may find another state than %s", state)
	}
}

// TestListsKnowEachRequest checks that a list looks up the name of each request that exists: a new request, and a
// request that the daemon has taken while the work goes on. Of an operation without requests it looks up none.
func TestListsKnowEachRequest(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	deaf := func(context.Context, *work.Op) error { <-free; return nil }
	b := setup(t, handlerJobs, map[string]work.Handler{"wait": {Run: deaf}, "count": {Run: countHandler}})
	defer close(free)
	named := func(id statefs.ID) statefs.NameSet {
		_, _, names, ok := b.daemon.LiveIndex()
		if !ok {
			return statefs.AllNames
		}
		return names(id)
	}
	exist := func(id statefs.ID) (found statefs.NameSet) {
		seen, err := b.tree.ObserveAll(id)
		must(t, err)
		for _, ask := range append(seen.Requests, b.tree.Cancelling(id)...) {
			found |= statefs.Name{Action: ask}.Bit()
		}
		return found
	}
	quiet := b.submit("wait", "{}")
	for range 20 {
		id := b.submit("wait", "{}")
		b.awaitState(id, statefs.Running)
		must(t, b.tree.Request(t.Context(), id, statefs.Cancel, nil))
		for range 20 {
			before, known := exist(id), named(id)
			if missed := before & exist(id) &^ known; missed != 0 || before == 0 {
				t.Fatalf("of %s a list looks up %b, and %b exists", id, known, before)
			}
		}
	}
	b.poll("of an operation without requests no name is looked up", func() bool { return named(quiet) == 0 })
	b.touch(quiet, statefs.Pause)
	pause := statefs.Name{Action: statefs.Pause}.Bit()
	b.poll("a request that a person makes is looked up", func() bool { return named(quiet)&pause != 0 })
}
