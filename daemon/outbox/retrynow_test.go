package outbox

import (
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// downWith returns a plan with many entries for a target that has gone down with the first of them.
func downWith(t *testing.T, many, perTarget int) *Plan {
	t.Helper()
	p := planOf(100, perTarget)
	p.Add(nameOf(t, 0), at("a"), began)
	take(t, p, began, nameOf(t, 0))
	if went := p.Failed(nameOf(t, 0), began, 0, "away"); went == nil || !went.Down || went.Error != "away" ||
		went.Name != "the target a" {
		t.Fatalf("the target is %+v", went)
	}
	for n := 1; n < many; n++ {
		p.Add(nameOf(t, n), at("a"), began)
	}
	return p
}

// An entry that a user asks to retry goes before all others, even at a target that is down.
func TestRetryNow(t *testing.T) {
	t.Parallel()
	p := downWith(t, 3, 1)
	take(t, p, began)
	p.RetryNow(nameOf(t, 2))
	take(t, p, began, nameOf(t, 2))
	if came := p.Settled(nameOf(t, 2)); came == nil || came.Down || came.Pending != 2 {
		t.Errorf("the target is %+v", came)
	}
	p.RetryNow(nameOf(t, 2)) // it was delivered
	take(t, p, began, nameOf(t, 1))
}

// Each requested entry is tried once, the last one first, whatever happens to the others. Then the
// target is left alone until the next probe.
func TestUrgentEntriesAreTriedOnce(t *testing.T) {
	t.Parallel()
	p := downWith(t, 9, 1)
	for n := range 6 {
		p.RetryNow(nameOf(t, n))
	}
	p.RetryNow(nameOf(t, 2))
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
	if len(p.targets["a"].urgent) != 0 {
		t.Errorf("left are %v", p.targets["a"].urgent)
	}
}

// A requested entry does not wait for the next probe, but counts toward the limit of concurrent
// tries at its target.
func TestUrgentEntryDuringProbe(t *testing.T) {
	t.Parallel()
	p := downWith(t, 5, 2)
	now := began.Add(ProbeInterval)
	take(t, p, now, nameOf(t, 1)) // this try hangs
	p.RetryNow(nameOf(t, 3))
	p.RetryNow(nameOf(t, 2))
	take(t, p, now, nameOf(t, 2))
	p.Failed(nameOf(t, 2), now, 0, "away")
	take(t, p, now, nameOf(t, 3))
	p.Failed(nameOf(t, 3), now, 0, "away")
	take(t, p, now.Add(time.Hour)) // without a request, one try at a time
	p.RetryNow(nameOf(t, 1))       // its try still hangs
	p.Failed(nameOf(t, 1), now, 0, "away")
	take(t, p, now, nameOf(t, 1))
	p.Failed(nameOf(t, 1), now, 0, "away")
	take(t, p, now)
}

// A local fault does not delay an entry that was requested after its try began.
func TestUrgentEntryAfterLocalFault(t *testing.T) {
	t.Parallel()
	p := planOf(4, 4)
	p.Add(nameOf(t, 0), at("a"), began)
	take(t, p, began, nameOf(t, 0))
	p.RetryNow(nameOf(t, 0))
	p.Defer(nameOf(t, 0), began)
	take(t, p, began, nameOf(t, 0))
	p.Defer(nameOf(t, 0), began)
	take(t, p, began)
	p.RetryNow(nameOf(t, 0))
	take(t, p, began, nameOf(t, 0))
	p.Defer(nameOf(t, 0), began)
	p.ProbeNow([]statefs.EntryName{nameOf(t, 0), nameOf(t, 1)}, began)
	take(t, p, began, nameOf(t, 0))
	p.Settled(nameOf(t, 0))
	if len(p.targets) != 0 || p.deferred.Len() != 0 {
		t.Errorf("left are %v, %v", p.targets, p.deferred.All())
	}
}

// A request for very many entries costs a target that is down only maxUrgent tries. The first of
// them is the entry requested last.
func TestUrgentEntriesAreBounded(t *testing.T) {
	t.Parallel()
	const many = 5000
	p := downWith(t, many, 4)
	for n := range many {
		p.RetryNow(nameOf(t, n))
	}
	p.RetryNow(nameOf(t, 7))
	for tries := 0; ; tries++ {
		name, ok := p.Next(began)
		if !ok {
			if tries != maxUrgent {
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
	p.ProbeNow(all, began)
	name, ok := p.Next(began)
	if !ok {
		t.Fatal("a prompt has nothing tried")
	}
	p.RetryNow(nameOf(t, 9)) // during that try
	p.Failed(name, began, 0, "away")
	take(t, p, began, nameOf(t, 9))
	p.Failed(nameOf(t, 9), began, 0, "away")
	take(t, p, began)
}

// A requested entry that is removed, put on hold or tried otherwise leaves nothing behind.
func TestUrgentEntryThatIsForgotten(t *testing.T) {
	t.Parallel()
	p := downWith(t, 5, 4)
	for n := range 5 {
		p.RetryNow(nameOf(t, n))
	}
	p.Forget(nameOf(t, 4))
	p.Hold(nameOf(t, 3), "the target a", began)
	take(t, p, began, nameOf(t, 2), nameOf(t, 1), nameOf(t, 0))
	p.RetryNow(nameOf(t, 1))
	p.Forget(nameOf(t, 1))
	p.Add(nameOf(t, 1), at("a"), began)
	for n := range 3 {
		p.Failed(nameOf(t, n), began, 0, "away")
	}
	take(t, p, began)
}

// With few workers, the next free one takes the requested entry.
func TestUrgentEntryHasTheNextWorker(t *testing.T) {
	t.Parallel()
	p := planOf(1, 1)
	for n, key := range []string{"a", "b", "c"} {
		p.Add(nameOf(t, 2*n), at(key), began)
		p.Add(nameOf(t, 2*n+1), at(key), began)
	}
	take(t, p, began, nameOf(t, 0))
	p.RetryNow(nameOf(t, 1))
	p.Failed(nameOf(t, 0), began, 0, "away")
	take(t, p, began, nameOf(t, 1))
}
