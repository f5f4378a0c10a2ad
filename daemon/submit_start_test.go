package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// onJournal makes the daemon commit by the journal: the test is about its order.
func (b *bench) onJournal() {
	b.t.Helper()
	must(b.t, b.tree.Close())
	options := statefs.Options{Now: b.now}
	options.Commit.Method, options.Commit.SegmentSize = statefs.CommitJournal, 256<<10
	var err error
	b.tree, err = statefs.Open(b.dir, options)
	must(b.t, err)
}

const holdJob = "{group: test, name: hold, handler: hold}"

// untilClosed returns a handler that ends when release is closed.
func untilClosed(release chan struct{}) work.Handlers {
	return work.Handlers{"hold": {Run: func(ctx context.Context, _ *work.Op) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}}
}

func setupOnJournal(t *testing.T, jobs string, handlers work.Handlers, change func(*Config)) *bench {
	t.Helper()
	b := prepare(t, jobs, handlers)
	b.onJournal()
	change(&b.config)
	b.start()
	return b
}

// namesOf returns the names that appear in jobs/ until do returns and the folder has been read.
func (b *bench) namesOf(do func()) []string {
	b.t.Helper()
	var names []string
	seen, err := watch.OpenDir(b.tree.JobsDir(), func(name string) (string, bool) { return name, true }, watch.Options{})
	must(b.t, err)
	ctx, stop := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- seen.Run(ctx) }()
	do()
	must(b.t, os.WriteFile(filepath.Join(b.tree.JobsDir(), "last"), nil, 0o600))
	for !slices.Contains(names, "last") {
		<-seen.Ready()
		some, _ := seen.Take()
		names = append(names, some...)
	}
	stop()
	must(b.t, errors.Join(<-ended, os.Remove(filepath.Join(b.tree.JobsDir(), "last"))))
	return names
}

// TestSubmitStarts: with a journal, a handler that waits for nothing starts with its submit: its first line says
// running, and no marker says queued.
func TestSubmitStarts(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b := setupOnJournal(t, holdJob, untilClosed(release), func(*Config) {})
	var id statefs.ID
	names := b.namesOf(func() { id = b.submit("hold", `{}`) })
	if !b.exists(statefs.MarkerName(id, statefs.Running)) {
		t.Errorf("after the submit jobs/ has %q", names)
	}
	if slices.Contains(names, statefs.MarkerName(id, statefs.Queued)) {
		t.Errorf("the marker was queued: %q", names)
	}
	rec, err := b.tree.ReadRecord(id)
	must(t, err)
	if rec.Status != statefs.Running || rec.Run != 1 || rec.Starts != 1 || rec.StartedAt == nil ||
		rec.PID != os.Getpid() || causesOf(rec) != `["submit","start"]` {
		t.Errorf("the record says %s, run %d, %d starts, %+v", rec.Status, rec.Run, rec.Starts, rec.Transitions)
	}
	if got := b.linesOf(id); len(got) != 1 {
		t.Errorf("the journal has %d lines of it: %s", len(got), got)
	}
	close(release)
	if rec := b.awaitEnd(id); rec.Status != statefs.Completed || rec.Starts != 1 {
		t.Errorf("%s after %d starts", rec.Status, rec.Starts)
	}
}

// linesOf returns the lines of an operation in the journal.
func (b *bench) linesOf(id statefs.ID) (lines []string) {
	b.t.Helper()
	_, err := statefs.ReadJournal(b.dir, func(_ uint64, line []byte) error {
		if strings.Contains(string(line), `"id":"`+id.String()) {
			lines = append(lines, string(line))
		}
		return nil
	})
	must(b.t, err)
	return lines
}

// TestPauseRightAfterASubmit: the start has a line already, so a pause has no other line before its own.
func TestPauseRightAfterASubmit(t *testing.T) {
	t.Parallel()
	b := setupOnJournal(t, "{group: test, name: steps, handler: steps}", work.Handlers{
		"steps": {Run: func(_ context.Context, op *work.Op) error {
			for {
				if err := op.Sleep(time.Millisecond); err != nil {
					return err
				}
			}
		}},
	}, func(*Config) {})
	id := b.submit("steps", `{}`)
	b.touch(id, statefs.Pause)
	b.awaitState(id, statefs.Paused)
	for n, line := range b.linesOf(id) {
		if n > 0 && strings.Contains(line, `"status":"running"`) {
			t.Errorf("line %d says that it runs: %s", n+1, line)
		}
	}
	b.touch(id, statefs.Cancel)
	rec := b.awaitEnd(id)
	if got := causesOf(rec); got != `["submit","start","pause","cancel"]` {
		t.Error(got)
	}
}

// TestSubmitWaits: an operation that may not begin is queued as before, and starts in its turn.
func TestSubmitWaits(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b := setupOnJournal(t, holdJob+"\n---\n{group: test, name: keyed, handler: hold, key: k}\n---\n"+
		"{group: test, name: full, handler: hold, lane: one}", untilClosed(release), func(c *Config) {
		c.Lanes = map[string]lanes.LaneConfig{"one": {Lane: queue.Lane{Capacity: 1}}}
	})
	first := b.submit("full", `{}`)
	var waits, keyed statefs.ID
	names := b.namesOf(func() { waits, keyed = b.submit("full", `{}`), b.submit("keyed", `{}`) })
	if !b.exists(statefs.MarkerName(first, statefs.Running)) || !b.exists(statefs.MarkerName(waits, statefs.Queued)) ||
		!slices.Contains(names, statefs.MarkerName(keyed, statefs.Queued)) {
		t.Errorf("the lane has a place for one, and in jobs/ appeared %q", names)
	}
	close(release)
	for _, id := range []statefs.ID{first, waits, keyed} {
		if rec := b.awaitEnd(id); rec.Status != statefs.Completed || rec.Starts != 1 {
			t.Errorf("%s is %s after %d starts", id, rec.Status, rec.Starts)
		}
	}
}

// atMarker is a listener that copies the journal before the marker of a submit is made.
type atMarker struct {
	submits
	copy func()
}

func (l atMarker) Announce(rec *statefs.Record) {
	l.copy()
	l.submits.Announce(rec)
}

// TestDeathBeforeTheMarkerOfASubmit: the start is in the journal, and the daemon died before it made the marker. The
// next one begins the work, and no run has died.
func TestDeathBeforeTheMarkerOfASubmit(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b := prepare(t, "{group: test, name: hold, handler: hold, crash_limit: {burst: 1}}", untilClosed(release))
	b.onJournal()
	b.tellEvents()
	left := map[string][]byte{}
	b.startAfter(func() {
		b.daemon.owner.SetSubmitListener(atMarker{submits{submitListener{b.daemon.core}, b.daemon.starts}, func() {
			names, err := filepath.Glob(filepath.Join(b.dir, "journal", "*"))
			must(t, err)
			for _, name := range append(names, filepath.Join(b.dir, "storage.json")) {
				left[name], err = os.ReadFile(name)
				must(t, err)
			}
		}})
	})
	id := b.submit("hold", `{}`)
	must(t, b.stop())
	for name, data := range left {
		must(t, os.WriteFile(name, data, 0o600))
	}
	must(t, os.Remove(b.tree.RecordPath(id)))
	for _, state := range statefs.LiveStates() {
		if b.exists(statefs.MarkerName(id, state)) {
			must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(id, state))))
		}
	}
	b.start()
	close(release)
	rec := b.awaitEnd(id)
	if got := causesOf(rec); got != `["submit","start","interrupted","start","done"]` || len(rec.DiedAt) > 0 ||
		rec.Run != 2 || rec.Starts != 2 {
		t.Errorf("%s, run %d, %d starts, died at %v", got, rec.Run, rec.Starts, rec.DiedAt)
	}
}

// TestStartOfASubmitIsPublished: both transitions are events, in their order, and counted.
func TestStartOfASubmitIsPublished(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b := prepare(t, holdJob, untilClosed(release))
	b.onJournal()
	b.tellEvents()
	b.start()
	r := b.config.Events.Follow(events.Filter{Types: []events.Type{events.Transition}}, 0)
	defer r.Close()
	id := b.submit("hold", `{}`)
	b.toldOf(r, "test/hold >queued submit", "test/hold queued>running start")
	if n := b.daemon.Health().Counters["transitions"]; n != 1 {
		t.Errorf("%d transitions are counted", n)
	}
	if states := b.daemon.States(); states[statefs.Running] != 1 || states[statefs.Queued] != 0 {
		t.Errorf("counted are %v", states)
	}
	close(release)
	b.awaitEnd(id)
}
