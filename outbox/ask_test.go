package outbox

import (
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// downWith is a plan with so many entries for a target that has gone down with the first of them.
func downWith(t *testing.T, many, perTarget int) *Plan {
	t.Helper()
	p := planOf(100, perTarget)
	p.Add(nameOf(t, 0), at("a"), began)
	take(t, p, began, nameOf(t, 0))
	p.Failed(nameOf(t, 0), began, 0, "away")
	for n := 1; n < many; n++ {
		p.Add(nameOf(t, n), at("a"), began)
	}
	return p
}

// An entry that somebody asks for goes before all others, also at a target that is down.
func TestAsk(t *testing.T) {
	t.Parallel()
	p := downWith(t, 3, 1)
	take(t, p, began)
	p.Ask(nameOf(t, 2))
	take(t, p, began, nameOf(t, 2))
	p.Settled(nameOf(t, 2))
	if changes := p.Changes(); len(changes) != 2 || !changes[0].Down || changes[0].Reason != "away" || changes[0].Label != "the target a" || changes[1].Down || changes[1].Waiting != 2 {
		t.Errorf("the changes are %+v", changes)
	}
	p.Ask(nameOf(t, 2)) // it is gone
	take(t, p, began, nameOf(t, 1))
}

// Each of those that were asked for is tried once, the last one first, and the failures of others take that from none; then the target is left alone.
func TestAskedForAreTriedOnce(t *testing.T) {
	t.Parallel()
	p := downWith(t, 9, 1)
	for n := range 6 {
		p.Ask(nameOf(t, n))
	}
	p.Ask(nameOf(t, 2))
	if due, ok := p.Due(began); !ok || !due.Equal(began) {
		t.Errorf("they are due at %s, %v", due, ok)
	}
	for _, n := range []int{2, 5, 4, 3, 1, 0} {
		take(t, p, began, nameOf(t, n))
		p.Failed(nameOf(t, n), began, time.Hour, "away")
	}
	take(t, p, began)
	if due, ok := p.Due(began); !ok || due.Sub(began) != time.Hour {
		t.Errorf("the next is due at %s, %v", due, ok)
	}
	if len(p.targets["a"].asked) != 0 {
		t.Errorf("left are %v", p.targets["a"].asked)
	}
}

// The wait of a target, and the turn of its newest, are nothing to one that was asked for, but how many go there at once is.
func TestAskedForBesideAProbe(t *testing.T) {
	t.Parallel()
	p := downWith(t, 5, 2)
	now := began.Add(ProbeInterval)
	take(t, p, now, nameOf(t, 1)) // it hangs
	p.Ask(nameOf(t, 3))
	p.Ask(nameOf(t, 2))
	take(t, p, now, nameOf(t, 2))
	p.Failed(nameOf(t, 2), now, 0, "away")
	take(t, p, now, nameOf(t, 3))
	p.Failed(nameOf(t, 3), now, 0, "away")
	take(t, p, now.Add(time.Hour)) // by itself it is tried with one at a time
	p.Ask(nameOf(t, 1))            // the one that hangs
	p.Failed(nameOf(t, 1), now, 0, "away")
	take(t, p, now, nameOf(t, 1))
	p.Failed(nameOf(t, 1), now, 0, "away")
	take(t, p, now)
}

// What is wrong on our side puts off nothing that was asked for since.
func TestAskedForAfterAFaultOfOurs(t *testing.T) {
	t.Parallel()
	p := planOf(4, 4)
	p.Add(nameOf(t, 0), at("a"), began)
	take(t, p, began, nameOf(t, 0))
	p.Ask(nameOf(t, 0))
	p.Defer(nameOf(t, 0), began)
	take(t, p, began, nameOf(t, 0))
	p.Defer(nameOf(t, 0), began)
	take(t, p, began)
	p.Ask(nameOf(t, 0))
	take(t, p, began, nameOf(t, 0))
	p.Defer(nameOf(t, 0), began)
	p.Prompt([]statefs.EntryName{nameOf(t, 0), nameOf(t, 1)}, began)
	take(t, p, began, nameOf(t, 0))
	p.Settled(nameOf(t, 0))
	if len(p.targets) != 0 || len(p.later.list) != 0 {
		t.Errorf("left are %v, %v", p.targets, p.later.list)
	}
}

// Who asks for very many means the target: it costs a few tries, among them the one of the entry that was asked for last.
func TestAsksAreBounded(t *testing.T) {
	t.Parallel()
	const many = 5000
	p := downWith(t, many, 4)
	for n := range many {
		p.Ask(nameOf(t, n))
	}
	p.Ask(nameOf(t, 7))
	for tries := 0; ; tries++ {
		name, ok := p.Next(began)
		if !ok {
			if tries != mostAsked {
				t.Errorf("it was tried %d times", tries)
			}
			break
		}
		if tries == 0 && name != nameOf(t, 7) {
			t.Errorf("the first was %v", name)
		}
		p.Failed(name, began, 0, "away")
	}
	var all []statefs.EntryName
	for n := range many {
		all = append(all, nameOf(t, n))
	}
	p.Prompt(all, began)
	name, ok := p.Next(began)
	if !ok {
		t.Fatal("a prompt has nothing tried")
	}
	p.Ask(nameOf(t, 9)) // while that is under way
	p.Failed(name, began, 0, "away")
	take(t, p, began, nameOf(t, 9))
	p.Failed(nameOf(t, 9), began, 0, "away")
	take(t, p, began)
}

// One that was asked for and is removed, held or taken otherwise leaves nothing behind.
func TestAskedForAndGone(t *testing.T) {
	t.Parallel()
	p := downWith(t, 5, 4)
	for n := range 5 {
		p.Ask(nameOf(t, n))
	}
	p.Forget(nameOf(t, 4))
	p.Hold(nameOf(t, 3), "the target a", began)
	take(t, p, began, nameOf(t, 2), nameOf(t, 1), nameOf(t, 0))
	p.Ask(nameOf(t, 1))
	p.Forget(nameOf(t, 1))
	p.Add(nameOf(t, 1), at("a"), began)
	for n := range 3 {
		p.Failed(nameOf(t, n), began, 0, "away")
	}
	take(t, p, began)
}

// Where workers are few, what somebody asked for has the next one.
func TestAskedForHasTheNextWorker(t *testing.T) {
	t.Parallel()
	p := planOf(1, 1)
	for n, key := range []string{"a", "b", "c"} {
		p.Add(nameOf(t, 2*n), at(key), began)
		p.Add(nameOf(t, 2*n+1), at(key), began)
	}
	take(t, p, began, nameOf(t, 0))
	p.Ask(nameOf(t, 1))
	p.Failed(nameOf(t, 0), began, 0, "away")
	take(t, p, began, nameOf(t, 1))
}
