package daemon

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/tally"
)

func TestWhatIsInHandIsCounted(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	b := prepare(t, "group: test\nname: held\nhandler: held\n", Handlers{"held": {Run: func(ctx context.Context, _ *Op) error {
		select {
		case <-goOn:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}})
	check := func(want map[statefs.State]int) tally.Stats {
		t.Helper()
		if got := b.daemon.States(); !maps.Equal(got, want) || !maps.Equal(b.daemon.Health().Live, want) {
			t.Errorf("states %v, want %v", got, want)
		}
		s := b.daemon.Stats()
		if len(s.Lanes) != 1 || s.Lanes[0].Name != tally.DefaultLane || !maps.Equal(s.Lanes[0].States, want) || !maps.Equal(s.All.States, want) {
			t.Errorf("stats %+v, want %v", s, want)
		}
		return s
	}
	before := b.submit("held", "{}")
	b.start()
	b.awaitState(before, statefs.Running)
	ended, other := b.submit("held", "{}"), b.submit("held", "{}")
	for _, id := range []statefs.ID{ended, other} {
		b.awaitState(id, statefs.Running)
	}
	b.touch(ended, statefs.Cancel)
	b.awaitEnd(ended)
	b.await("it is no longer in hand", func() bool { return !b.daemon.Has(ended) })
	s := check(map[statefs.State]int{statefs.Running: 2})
	if s.All.Waiting.Count != 3 || s.All.Processing.Count != 1 || s.All.OldestWait != 0 || len(s.All.Ages) != 0 {
		t.Errorf("stats %+v", s.All)
	}
	must(t, b.stop())
	b.start()
	b.awaitState(before, statefs.Running)
	b.awaitState(other, statefs.Running)
	if s := check(map[statefs.State]int{statefs.Running: 2}); s.All.Waiting.Count != 2 {
		t.Errorf("the next daemon begins with %+v", s.All)
	}
	goOn <- struct{}{}
	goOn <- struct{}{}
	b.awaitEnd(before)
	b.awaitEnd(other)
	b.await("they are no longer in hand", func() bool { return !b.daemon.Has(before) && !b.daemon.Has(other) })
	check(map[statefs.State]int{})
}

func TestAgesOfWhatIsQueued(t *testing.T) {
	t.Parallel()
	b := prepare(t, "group: test\nname: held\nhandler: held\n", Handlers{"held": {}})
	b.start()
	b.daemon.Drain() // nothing begins any more
	id := b.submit("held", "{}")
	b.await("it is in hand", func() bool { return b.daemon.States()[statefs.Queued] == 1 })
	b.jump.Store(int64(100 * time.Second))
	s := b.daemon.Stats()
	if s.Lanes[0].OldestWait < 100 || len(s.All.Ages) != 8 || s.All.Ages[7] != (tally.Bucket{Below: 128, Count: 1}) {
		t.Errorf("%+v", s.All)
	}
	b.touch(id, statefs.Pause)
	b.awaitState(id, statefs.Paused)
	b.await("it is counted as paused", func() bool { return b.daemon.States()[statefs.Paused] == 1 })
	if s := b.daemon.Stats(); s.All.OldestWait != 0 || len(s.All.Ages) != 0 {
		t.Errorf("%+v", s.All)
	}
}

func BenchmarkStats(b *testing.B) {
	d := &Daemon{ops: make(map[statefs.ID]*operation), config: Config{}}
	dir := b.TempDir()
	tree, err := statefs.Open(dir, statefs.Options{})
	if err != nil {
		b.Fatal(err)
	}
	if d.owner, err = statefs.Own(tree); err != nil {
		b.Fatal(err)
	}
	for i := range 100_000 {
		id, err := statefs.ParseID(fmt.Sprintf("g-j_2026-11-22_12-00-00_p1_r%d", i+1))
		if err != nil {
			b.Fatal(err)
		}
		op := newOperation(statefs.Unknown(id, time.Now()))
		op.state = statefs.Queued
		d.keep(op)
	}
	for b.Loop() {
		if d.Stats().All.Queued != 100_000 {
			b.Fatal("they are not counted")
		}
	}
}
