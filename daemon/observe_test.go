package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// A daemon whose Run is not called gets no events, so each observation below passes the names that
// the watch would report.
func TestASightAsksForWhatWasHeardOfAndWhatIsOpen(t *testing.T) {
	t.Parallel()
	b := prepare(t, handlerJobs, testHandlers)
	d := b.unstarted()
	id := b.submit("count", "{}")
	pause, queued := statefs.Name{Action: statefs.Pause}.Bit(), statefs.MarkerBit(statefs.Queued)
	sees := func(names statefs.NameSet, states, asks int) {
		t.Helper()
		sight, err := d.observe(id, d.operation(id), names)
		must(t, err)
		if len(sight.States) != states || len(sight.Requests) != asks {
			t.Errorf("told of %b: %+v, want %d markers and %d requests", names, sight, states, asks)
		}
	}
	file := func(name string) string { return filepath.Join(b.tree.JobsDir(), name) }
	request := file(statefs.RequestName(id, statefs.Pause))

	sees(queued, 1, 0) // it is new
	must(t, os.WriteFile(request, nil, 0o600))
	sees(queued, 1, 0)
	sees(pause, 1, 1) // a request for an unmanaged operation: all names are checked
	sees(queued|namesFromListing, 1, 0)
	sees(pause|namesFromListing, 1, 1) // the listing has missed the marker
	must(t, os.Remove(request))
	d.unsettledIDs.set(id, "") // it could not be taken over
	must(t, os.WriteFile(request, nil, 0o600))
	sees(queued, 1, 1)
	d.unsettledIDs.take(id)
	must(t, os.Remove(request))

	rec, err := b.tree.ReadRecord(id)
	must(t, err)
	op := newOperation(rec)
	d.setState(op, statefs.Queued)
	d.track(op)
	sees(0, 1, 0)
	must(t, os.WriteFile(request, nil, 0o600))
	sees(0, 1, 0)     // before its event
	sees(pause, 1, 1) // after its event
	sees(0, 1, 1)     // it has not been taken yet
	must(t, os.Remove(request))
	sees(0, 1, 0)
	must(t, os.WriteFile(request, nil, 0o600))
	must(t, os.Rename(file(statefs.MarkerName(id, statefs.Queued)), file(statefs.MarkerName(id, statefs.Paused))))
	sees(0, 1, 1) // the marker is missing: all names are checked
	if op.extraNames != pause {
		t.Errorf("open are %b, want %b", op.extraNames, pause)
	}
	must(t, os.Mkdir(file(statefs.MarkerName(id, statefs.Trailing)), 0o750))
	sees(statefs.MarkerBit(statefs.Trailing), 1, 1)
	if op.extraNames != statefs.AllNames {
		t.Errorf("open are %b beside a folder, want all", op.extraNames)
	}
	must(t, os.Remove(file(statefs.MarkerName(id, statefs.Trailing))))
	must(t, os.Remove(file(statefs.MarkerName(id, statefs.Paused))))
	sees(0, 0, 1)
	d.untrack(op)
	must(t, os.Remove(request))
	sees(queued, 0, 0) // it has ended
}

// Only the marker that the daemon knows may have the name in an event, and no other one.
func TestEventsThatTellNothingNew(t *testing.T) {
	t.Parallel()
	b := prepare(t, handlerJobs, testHandlers)
	d := b.unstarted()
	id := b.submit("count", "{}")
	queued, running := statefs.MarkerBit(statefs.Queued), statefs.MarkerBit(statefs.Running)
	file := func(state statefs.State) string {
		return filepath.Join(b.tree.JobsDir(), statefs.MarkerName(id, state))
	}
	known := func(names statefs.NameSet, want bool) {
		t.Helper()
		if got := d.isKnown(id, d.operation(id), names); got != want {
			t.Errorf("known is %v with the names %b", got, names)
		}
	}
	gone := func(state statefs.State, want bool) {
		t.Helper()
		_, s := d.live.Get(id)
		if got := d.isOldMarker(watchKey{id, statefs.MarkerBit(state), true}, s); got != want {
			t.Errorf("the marker %s that is gone is an old one: %v", state, got)
		}
	}
	gone(statefs.Queued, true) // nothing is known of it, so nothing is lost
	d.unsettledIDs.set(id, "")
	gone(statefs.Queued, false)
	known(running, false)
	d.unsettledIDs.take(id)
	known(queued, false) // it is new
	known(running, true) // there is none

	rec, err := b.tree.ReadRecord(id)
	must(t, err)
	op := newOperation(rec)
	d.setState(op, statefs.Queued)
	op.shown.Marker, _, err = d.owner.Identify(statefs.MarkerName(id, statefs.Queued))
	must(t, err)
	d.track(op)
	for _, names := range []statefs.NameSet{queued, running, markerGone, queued | running | markerGone} {
		known(names, true)
	}
	for _, names := range []statefs.NameSet{
		0, noNames, statefs.AllNames, queued | noNames, queued | statefs.Name{Action: statefs.Pause}.Bit(),
	} {
		known(names, false)
	}
	gone(statefs.Running, true)
	gone(statefs.Queued, false)
	op.misplaced.Store(true)
	known(queued, false)
	op.misplaced.Store(false)
	op.extraNames = statefs.Name{Action: statefs.Pause}.Bit()
	known(queued, false)
	op.extraNames = 0
	op.missing.events = 1
	known(queued, false)
	op.missing = missingMarker{}

	must(t, os.WriteFile(file(statefs.Running), nil, 0o600)) // a second marker
	known(queued|running, false)
	must(t, os.Remove(file(statefs.Running)))
	must(t, os.Rename(file(statefs.Queued), file(statefs.Running)))
	known(markerGone, false)
	known(running, false)
	must(t, os.WriteFile(file(statefs.Queued), nil, 0o600)) // another file
	known(queued, false)
}

// A submit of this process is remembered until its event comes, and no longer.
func TestOwnSubmitsAreForgottenWithTheirEvents(t *testing.T) {
	t.Parallel()
	b := prepare(t, handlerJobs, testHandlers)
	b.start()
	id := b.submit("count", "{}")
	b.awaitEnd(id)
	b.poll("its events are taken", func() bool {
		_, own := b.daemon.ownSubmits.get(id)
		return !own && !b.daemon.reconcileQueue.has(id)
	})
	if _, unsettled := b.daemon.unsettledIDs.get(id); unsettled {
		t.Error("it is unsettled")
	}
}
