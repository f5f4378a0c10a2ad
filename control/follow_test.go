package control

import (
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// The progress file is also the heartbeat of the work; only a change of its content is an event.
func TestProgressWithoutNewsIsNoEvent(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit().start()
	f := r.server.hub.follow(w.id, viewDetail)
	defer f.close()
	at, total := time.Now(), int64(2)
	shown := ""
	for _, c := range []struct {
		name     string
		progress statefs.Progress
		news     string
	}{
		{"a silent command", statefs.Progress{}, ""},
		{"still silent", statefs.Progress{}, ""},
		{"a first item", statefs.Progress{Done: 1, Total: &total, Phase: "one"}, `"done":1`},
		{"nothing new", statefs.Progress{Done: 1, Total: &total, Phase: "one"}, ""},
		{"another phase", statefs.Progress{Done: 1, Total: &total, Phase: "two"}, `"phase":"two"`},
		{"another item", statefs.Progress{Done: 2, Total: &total, Phase: "two"}, `"done":2`},
		{"begun again", statefs.Progress{}, `"done":0`},
	} {
		at = at.Add(time.Second)
		c.progress.At = at
		must(t, r.owner.Output.WriteProgress(w.id, c.progress))
		snap, err := f.Snapshot()
		must(t, err)
		got := string(snap.Progress)
		if news := got != shown; news != (c.news != "") || !strings.Contains(got, c.news) {
			t.Errorf("%s: %q after %q", c.name, got, shown)
		}
		shown = got
	}
}

// An end is published after the marker is gone, and not while a power cut could undo the record.
func TestEndIsToldWhenTheMarkerIsGone(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit().start()
	rec, err := r.tree.ReadRecord(w.id)
	must(t, err)
	must(t, rec.Apply(statefs.Running, statefs.CauseDone, time.Now()))
	must(t, r.owner.WriteRecord(rec)) // as just before the sync of its folder
	before := r.server.hub.follow(w.id, viewDetail)
	defer before.close()
	if snap, err := before.Snapshot(); err != nil || snap.Ended {
		t.Errorf("with a marker: ended %v, %v", snap.Ended, err)
	}
	must(t, r.owner.RemoveName(statefs.MarkerName(w.id, statefs.Running)))
	after := r.server.hub.follow(w.id, viewDetail)
	defer after.close()
	if snap, err := after.Snapshot(); err != nil || !snap.Ended || snap.State != string(statefs.Completed) {
		t.Errorf("without: %+v, %v", snap, err)
	}
}
