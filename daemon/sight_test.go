package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

// A daemon whose Run is not called hears of nothing, so each sight below is told what the watch would have.
func TestASightAsksForWhatWasHeardOfAndWhatIsOpen(t *testing.T) {
	t.Parallel()
	b := prepare(t, handlerJobs, testHandlers)
	owner, err := statefs.Own(b.tree)
	must(t, err)
	b.config.Owner, b.config.Catalog, b.config.Handlers = owner, b.catalog, b.handlers
	b.config.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	d, err := New(b.config)
	must(t, err)
	t.Cleanup(func() {
		must(t, d.Close())
		must(t, owner.Release())
	})
	id := b.submit("count", "{}")
	pause, queued := statefs.Name{Ask: statefs.Pause}.Bit(), statefs.NameOf(statefs.Queued)
	sees := func(names statefs.Names, states, asks int) {
		t.Helper()
		sight, err := d.sight(id, names)
		must(t, err)
		if len(sight.States) != states || len(sight.Asks) != asks {
			t.Errorf("told of %b: %+v, want %d markers and %d requests", names, sight, states, asks)
		}
	}
	file := func(name string) string { return filepath.Join(b.tree.JobsDir(), name) }
	request := file(statefs.RequestName(id, statefs.Pause))

	sees(queued, 1, 0) // it is new
	must(t, os.WriteFile(request, nil, 0o600))
	sees(queued, 1, 0)
	sees(pause, 1, 1) // a request for something that is not in hand: everything is asked for
	sees(queued|allListed, 1, 0)
	sees(pause|allListed, 1, 1) // the listing has missed the marker
	must(t, os.Remove(request))
	d.doubts.note(id, true) // it could not be taken in hand
	must(t, os.WriteFile(request, nil, 0o600))
	sees(queued, 1, 1)
	d.doubts.note(id, false)
	must(t, os.Remove(request))

	rec, err := b.tree.ReadRecord(id)
	must(t, err)
	op := newOperation(rec)
	op.set(statefs.Queued)
	d.keep(op)
	sees(0, 1, 0)
	must(t, os.WriteFile(request, nil, 0o600))
	sees(0, 1, 0)     // its event is to come
	sees(pause, 1, 1) // and came
	sees(0, 1, 1)     // nobody has taken it yet
	must(t, os.Remove(request))
	sees(0, 1, 0)
	must(t, os.WriteFile(request, nil, 0o600))
	must(t, os.Rename(file(statefs.MarkerName(id, statefs.Queued)), file(statefs.MarkerName(id, statefs.Paused))))
	sees(0, 1, 1) // the marker is not where it was: everything is asked for
	if op.open != pause {
		t.Errorf("open are %b, want %b", op.open, pause)
	}
	must(t, os.Mkdir(file(statefs.MarkerName(id, statefs.Trailing)), 0o750))
	sees(statefs.NameOf(statefs.Trailing), 1, 1)
	if op.open != statefs.AllNames {
		t.Errorf("open are %b beside a folder, want all", op.open)
	}
	must(t, os.Remove(file(statefs.MarkerName(id, statefs.Trailing))))
	must(t, os.Remove(file(statefs.MarkerName(id, statefs.Paused))))
	sees(0, 0, 1)
	d.forget(op)
	must(t, os.Remove(request))
	sees(queued, 0, 0) // it has ended
}
