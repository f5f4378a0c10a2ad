package outbox

import (
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// A local fault defers one entry, each time for longer, and does not affect its target.
func TestDeferred(t *testing.T) {
	t.Parallel()
	p, now := planOf(4, 1), began
	p.Add(nameOf(t, 0), at("a"), began)
	p.Add(nameOf(t, 1), at("a"), began)
	take(t, p, now, nameOf(t, 0))
	for _, want := range []time.Duration{ProbeInterval, 2 * ProbeInterval, 4 * ProbeInterval} {
		p.Defer(nameOf(t, 0), now)
		if s := p.State(nameOf(t, 0)); s != Deferred {
			t.Fatalf("it is %v", s)
		}
		if p.State(nameOf(t, 1)) == Waiting {
			take(t, p, now, nameOf(t, 1))
			p.Settled(nameOf(t, 1))
		}
		due, ok := p.Due(now)
		if !ok || due.Sub(now) != want {
			t.Fatalf("it is due in %s, %v, want %s", due.Sub(now), ok, want)
		}
		take(t, p, due.Add(-1))
		take(t, p, due, nameOf(t, 0))
		now = due
	}
	if changed := p.Settled(nameOf(t, 0)); changed != nil {
		t.Errorf("the target went down: %+v", changed)
	}
	if len(p.targets) != 0 || len(p.entries) != 0 || p.deferred.Len() != 0 {
		t.Errorf("left are %v, %v, %v", p.targets, p.entries, p.deferred.All())
	}
}

// Tries that began before a user's request do not delay the requested probe, however late they
// fail. Later tries do.
func TestProbeDuringTries(t *testing.T) {
	t.Parallel()
	p := planOf(4, 3)
	for n := range 4 {
		p.Add(nameOf(t, n), at("a"), began)
	}
	take(t, p, began, nameOf(t, 0), nameOf(t, 1), nameOf(t, 2))
	p.Failed(nameOf(t, 0), began, 0, "away")
	p.ProbeNow([]statefs.EntryName{nameOf(t, 3)}, began)
	p.Failed(nameOf(t, 1), began, time.Minute, "away")
	take(t, p, began) // one probe at a time
	p.Failed(nameOf(t, 2), began, 0, "away")
	take(t, p, began, nameOf(t, 3))
	p.ProbeNow([]statefs.EntryName{nameOf(t, 3)}, began) // during a try of it
	p.Failed(nameOf(t, 3), began, 0, "away")
	next, ok := p.Next(began)
	if !ok {
		t.Fatal("what was asked for during a try is not tried again")
	}
	p.Failed(next, began, 0, "away")
	if due, ok := p.Due(began); !ok || due.Sub(began) != ProbeInterval {
		t.Errorf("it is due in %s, %v", due.Sub(began), ok)
	}
}

// A change of an entry during a try takes effect when the try ends.
func TestWhileItIsTried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(*Plan)
		want      EntryState
	}{
		"forgotten":           {func(p *Plan) { p.Forget(nameOf(t, 0)) }, Unknown},
		"held":                {func(p *Plan) { p.Hold(nameOf(t, 0), "the target a", began) }, Held},
		"forgotten and added": {func(p *Plan) { p.Forget(nameOf(t, 0)); p.Add(nameOf(t, 0), at("a"), began) }, Waiting},
		"asked for":           {func(p *Plan) { p.RetryNow(nameOf(t, 0)) }, Waiting},
	} {
		p := planOf(4, 4)
		p.Add(nameOf(t, 0), at("a"), began)
		take(t, p, began, nameOf(t, 0))
		c.meanwhile(p)
		take(t, p, began) // never two tries at once
		p.Failed(nameOf(t, 0), began, 0, "away")
		if got := p.State(nameOf(t, 0)); got != c.want || len(p.trying) != 0 {
			t.Errorf("%s: it is %v, tried are %v", name, got, p.trying)
		}
	}
}

func TestSummaryAndSelect(t *testing.T) {
	t.Parallel()
	p := planOf(4, 4)
	p.Expect(nameOf(t, 0), began)
	p.Add(nameOf(t, 1), at("a"), began.Add(3*time.Second))
	p.Add(nameOf(t, 2), at("a"), began.Add(2*time.Second))
	p.Add(nameOf(t, 3), at("b"), began.Add(4*time.Second))
	p.Hold(nameOf(t, 4), "the target a", began.Add(time.Second))
	s := p.Summary()
	if s.Pending != 3 || s.FailedManual != 1 || !s.OldestAt.Equal(began.Add(2*time.Second)) || len(s.Targets) != 2 ||
		s.Targets[0].Pending != 2 || !s.Targets[1].OldestAt.Equal(began.Add(4*time.Second)) {
		t.Errorf("the summary is %+v", s)
	}
	var all []int
	var after *statefs.OutboxLine
	for range 3 {
		page, total := p.Select(func(l *statefs.OutboxLine) bool { return l.Status != statefs.DeliveryManual || l.Name == nameOf(t, 4) }, after, 2)
		if total != 4 {
			t.Errorf("%d match", total)
		}
		for _, l := range page {
			all = append(all, int(l.Name.ID.Sequence())-1)
			after = &l
		}
	}
	if len(all) != 4 || all[0] != 4 || all[1] != 2 || all[2] != 1 || all[3] != 3 {
		t.Errorf("the pages have %v", all)
	}
	if page, total := p.Select(func(l *statefs.OutboxLine) bool { return l.Status == statefs.DeliveryManual }, nil, 0); total != 1 || len(page) != 0 {
		t.Errorf("a count alone is %v, %d", page, total)
	}
	if beside := p.Except(map[statefs.EntryName]bool{
		nameOf(t, 1): true, nameOf(t, 2): true,
		nameOf(t, 4): true,
	}); len(beside) != 1 || beside[0] != nameOf(t, 3) {
		t.Errorf("beside the given ones are %v", beside)
	}
	p.Add(nameOf(t, 0), at("c"), began) // its end is durable
	if s := p.Summary(); s.Pending != 4 || !s.OldestAt.Equal(began) {
		t.Errorf("the summary is %+v", s)
	}
}
