package effect

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// A waiter is settled by what was noted of its action while it waits, also before it knows that its file was made.
func TestWaiters(t *testing.T) {
	t.Parallel()
	id, err := statefs.MakeID("g-j", time.Now(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	var all Waiters
	woken := 0
	await := func(action statefs.Action) *Waiter {
		return all.Await(id, action, func(statefs.ID) { woken++ })
	}
	settle := func(final bool) (waiting int) {
		all.Settle(id, func(r Request) (Outcome, bool) {
			waiting++
			return Outcome{r.CarriedOut, statefs.Paused}, r.Made && final
		})
		return waiting
	}
	three, seven := await(statefs.Prioritize), await(statefs.Prioritize)
	three.Made(json.RawMessage(`3`))
	early, other, left := await(statefs.Pause), await(statefs.Resume), await(statefs.Pause)
	left.Leave()
	all.Note(id, statefs.Pause, nil, true)
	if n := settle(false); n != 4 || woken != 0 {
		t.Errorf("%d wait, woken %d times", n, woken)
	}
	early.Made(nil)
	seven.Made(json.RawMessage(`7`))
	other.Made(nil)
	if woken != 1 {
		t.Errorf("woken %d times", woken)
	}
	all.Note(id, statefs.Prioritize, json.RawMessage(`7`), true)
	settle(true)
	for i, w := range []*Waiter{three, seven, early, other} {
		want := w == seven || w == early
		select {
		case got := <-w.C:
			if got.TookEffect != want {
				t.Errorf("waiter %d: %+v", i, got)
			}
		default:
			t.Errorf("waiter %d has no outcome", i)
		}
	}
	if settle(true) != 0 || len(all.byID) != 0 {
		t.Errorf("%v are kept", all.byID)
	}
}
