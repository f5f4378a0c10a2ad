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
		sight, err := d.observe(id, names)
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
