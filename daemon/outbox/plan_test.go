package outbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

var began = time.Date(2025, 11, 26, 13, 0, 0, 0, time.UTC)

func nameOf(t *testing.T, n int) statefs.EntryName {
	t.Helper()
	return nameIn(t, n)
}

func nameIn(tb testing.TB, n int) statefs.EntryName {
	tb.Helper()
	id, err := statefs.ParseID(fmt.Sprintf("g-j_2025-11-26_13-07-00_p1_r%d", n+1))
	if err != nil {
		tb.Fatal(err)
	}
	return statefs.EntryName{ID: id, Place: 1, Kind: "folder"}
}

func planOf(limit, perTarget int) *Plan {
	return NewPlan(limit, perTarget, func() float64 { return 0 })
}

func at(key string) Destination { return Destination{Key: key, Label: "the target " + key} }

func take(t *testing.T, p *Plan, now time.Time, want ...statefs.EntryName) {
	t.Helper()
	for i, w := range want {
		if got, ok := p.Next(now); !ok || got != w {
			t.Fatalf("taken as number %d: %v, %v, want %v", i, got, ok, w)
		}
	}
	if got, ok := p.Next(now); ok {
		t.Fatalf("%v could be tried too", got)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	p := planOf(3, 2)
	for n := range 4 {
		p.Add(nameOf(t, n), at("a"), began)
		p.Add(nameOf(t, n), at("a"), began)
	}
	p.Add(nameOf(t, 7), at("b"), began)
	p.Add(nameOf(t, 8), at("b"), began)
	take(t, p, began, nameOf(t, 0), nameOf(t, 7), nameOf(t, 1))
	if _, ok := p.Due(began); ok {
		t.Error("something is due although all workers are busy")
	}
	p.Settled(nameOf(t, 1))
	take(t, p, began, nameOf(t, 8))
	p.Settled(nameOf(t, 8))
	take(t, p, began, nameOf(t, 2))
}

// However many entries wait for a target that is down, it is probed with one; when that succeeds,
// all others may be tried at once.
func TestTargetThatIsDown(t *testing.T) {
	t.Parallel()
	p, now := planOf(100, 50), began
	const many = 40
	for n := range many {
		p.Add(nameOf(t, n), at("a"), began)
	}
	p.Add(nameOf(t, 99), at("b"), began)
	for range many + 1 {
		p.Next(now)
	}
	for n := range many {
		p.Failed(nameOf(t, n), now, 0, "away")
	}
	p.Settled(nameOf(t, 99))
	probed := func(probe int) statefs.EntryName { // the oldest and the newest in turn
		if probe%2 == 0 {
			return nameOf(t, probe/2)
		}
		return nameOf(t, many-1-probe/2)
	}
	for probe := range 10 {
		due, ok := p.Due(now)
		if !ok || due.Sub(now) != ProbeInterval {
			t.Fatalf("the next probe is in %s, %v", due.Sub(now), ok)
		}
		take(t, p, due.Add(-1))
		take(t, p, due, probed(probe))
		now = due
		p.Failed(probed(probe), now, 0, "away")
	}
	now = now.Add(ProbeInterval)
	take(t, p, now, probed(10))
	p.Settled(probed(10))
	count := 0
	for _, ok := p.Next(now); ok; _, ok = p.Next(now) {
		count++
	}
	if count != many-1 {
		t.Errorf("%d go at once", count)
	}
	for n := range many {
		if nameOf(t, n) != probed(10) {
			p.Settled(nameOf(t, n))
		}
	}
	if len(p.targets) != 0 || len(p.entries) != 0 || len(p.trying) != 0 {
		t.Errorf("left are %v, %v, %v", p.targets, p.entries, p.trying)
	}
}

// An entry that a target never accepts does not block the others.
func TestEntryThatAlwaysFails(t *testing.T) {
	t.Parallel()
	p, now := planOf(1, 1), began
	p.Add(nameOf(t, 0), at("a"), began)
	settled := 0
	for n := 1; n < 10; n++ {
		p.Add(nameOf(t, n), at("a"), began)
	}
	for range 30 {
		name, ok := p.Next(now)
		switch {
		case !ok:
			due, some := p.Due(now)
			if !some {
				t.Fatal("nothing is due")
			}
			now = due
		case name == nameOf(t, 0):
			p.Failed(name, now, 0, "away")
		default:
			settled++
			p.Settled(name)
		}
	}
	if settled != 9 || now.Sub(began) < ProbeInterval {
		t.Errorf("%d went through in %s", settled, now.Sub(began))
	}
}

func TestRetryAfterIsHeeded(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]time.Duration{
		0: ProbeInterval, time.Second: ProbeInterval,
		time.Minute: time.Minute, 9 * time.Hour: maxRetryAfter,
	} {
		p := planOf(4, 4)
		p.Add(nameOf(t, 0), at("a"), began)
		take(t, p, began, nameOf(t, 0))
		p.Failed(nameOf(t, 0), began, after, "away")
		if due, ok := p.Due(began); !ok || due.Sub(began) != want {
			t.Errorf("asked to be left alone for %s: %s, %v", after, due.Sub(began), ok)
		}
	}
}

// Every second probe takes the newest entry: entries that a target never accepts do not block the
// others.
func TestProbesFromBothEnds(t *testing.T) {
	t.Parallel()
	p := planOf(4, 4)
	now := began
	p.Add(nameOf(t, 0), at("a"), began)
	take(t, p, now, nameOf(t, 0))
	p.Failed(nameOf(t, 0), now, 0, "500")
	for n := 1; n < 9; n++ {
		p.Add(nameOf(t, n), at("a"), began)
	}
	for _, n := range []int{1, 8, 2, 7} {
		now = now.Add(time.Minute)
		take(t, p, now, nameOf(t, n))
		p.Failed(nameOf(t, n), now, 0, "500")
	}
	now = now.Add(time.Minute)
	take(t, p, now, nameOf(t, 3))
	p.Settled(nameOf(t, 3)) // the target is up again
	take(t, p, now, nameOf(t, 4), nameOf(t, 5), nameOf(t, 6), nameOf(t, 0))
}
