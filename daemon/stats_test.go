package daemon

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

func TestLiveOperationsAreCounted(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	b := prepare(t, "group: test\nname: held\nhandler: held\n",
		work.Handlers{"held": {Run: func(ctx context.Context, _ *work.Op) error {
			select {
			case <-goOn:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}})
	check := func(want map[statefs.State]int) api.LiveStats {
		t.Helper()
		if got := b.daemon.States(); !maps.Equal(got, want) || !maps.Equal(b.daemon.Health().Live, want) {
			t.Errorf("states %v, want %v", got, want)
		}
		s := b.daemon.Stats()
		if len(s.Lanes) != 1 || s.Lanes[0].Name != statefs.DefaultLane || !maps.Equal(s.Lanes[0].States, want) ||
			!maps.Equal(s.All.States, want) {
			t.Errorf("stats %+v, want %v", s, want)
		}
		return s
	}
	b.tellEvents()
	r := b.config.Events.Follow(events.Filter{Types: []events.Type{events.Transition}}, events.Now)
	defer r.Close()
	before := b.submit("held", "{}")
	b.start()
	b.awaitState(before, statefs.Running)
	ended, other := b.submit("held", "{}"), b.submit("held", "{}")
	for _, id := range []statefs.ID{ended, other} {
		b.awaitState(id, statefs.Running)
	}
	b.toldTo(r, statefs.Running, 3)
	b.touch(ended, statefs.Cancel)
	b.toldTo(r, statefs.Cancelled, 1)
	s := check(map[statefs.State]int{statefs.Running: 2})
	if s.All.Waiting.Count != 3 || s.All.Processing.Count != 1 || s.All.OldestWait != 0 || len(s.All.Ages) != 0 {
		t.Errorf("stats %+v", s.All)
	}
	must(t, b.stop())
	b.start()
	b.awaitState(before, statefs.Running)
	b.awaitState(other, statefs.Running)
	b.toldTo(r, statefs.Running, 2)
	if s := check(map[statefs.State]int{statefs.Running: 2}); s.All.Waiting.Count != 2 {
		t.Errorf("the next daemon begins with %+v", s.All)
	}
	goOn <- struct{}{}
	goOn <- struct{}{}
	b.toldTo(r, statefs.Completed, 2)
	check(map[statefs.State]int{})
}

// toldTo waits until count transitions to a state were published: by then they are counted.
func (b *bench) toldTo(r *events.Reader, state statefs.State, count int) {
	b.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for count > 0 {
		wake := r.Wake()
		frames, _ := r.Take()
		for _, f := range frames {
			if f.To == state {
				count--
			}
		}
		if len(frames) > 0 {
			continue
		}
		select {
		case <-wake:
		case <-late.C:
			b.t.Fatalf("%d transitions to %s were not told", count, state)
		}
	}
}

func TestAgesOfWhatIsQueued(t *testing.T) {
	t.Parallel()
	b := prepare(t, "group: test\nname: held\nhandler: held\n", work.Handlers{"held": {}})
	b.tellEvents()
	b.config.Lanes = map[string]lanes.LaneConfig{"cookie": {Lane: queue.Lane{Capacity: 2, Paused: true}}}
	b.start()
	r := b.config.Events.Follow(events.Filter{Types: []events.Type{events.Transition}}, events.Now)
	defer r.Close()
	b.daemon.Drain() // nothing starts any more
	id := b.submit("held", "{}")
	b.toldTo(r, statefs.Queued, 1)
	b.jump.Store(int64(100 * time.Second))
	s := b.daemon.Stats()
	if len(s.Lanes) != 2 || s.Lanes[0].Name != "cookie" || *s.Lanes[0].Capacity != 2 || !s.Lanes[0].Held ||
		s.Lanes[1].Capacity != nil || s.Lanes[1].Held {
		t.Fatalf("%+v", s.Lanes)
	}
	if s.Lanes[1].OldestWait < 100 || len(s.All.Ages) != 8 || s.All.Ages[7] != (api.Bucket{Below: 128, Count: 1}) {
		t.Errorf("%+v", s.All)
	}
	b.touch(id, statefs.Pause)
	b.toldTo(r, statefs.Paused, 1)
	if s := b.daemon.Stats(); s.All.OldestWait != 0 || len(s.All.Ages) != 0 {
		t.Errorf("%+v", s.All)
	}
}

func BenchmarkStats(b *testing.B) {
	d := newParts(Config{Intake: submit.NewIntake(submit.Config{})})
	dir := b.TempDir()
	tree, err := statefs.Open(dir, statefs.Options{})
	if err != nil {
		b.Fatal(err)
	}
	if d.owner, err = statefs.Own(tree); err != nil {
		b.Fatal(err)
	}
	d.admission = newAdmission(&d.config, func(statefs.ID) {}, time.Now)
	for i := range 100_000 {
		id, err := statefs.ParseID(fmt.Sprintf("g-j_2026-11-22_12-00-00_p1_r%d", i+1))
		if err != nil {
			b.Fatal(err)
		}
		op := newOperation(statefs.UnknownRecord(id, time.Now()))
		op.state = statefs.Queued
		d.track(op)
	}
	for b.Loop() {
		if d.Stats().All.Queued != 100_000 {
			b.Fatal("they are not counted")
		}
	}
}
