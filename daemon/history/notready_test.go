package history

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// A NotReadyError has a cause and a time to ask again.
func TestNotReadySaysWhen(t *testing.T) {
	t.Parallel()
	full := fmt.Errorf("write: %w", syscall.ENOSPC)
	for text, c := range map[string]struct {
		err   NotReadyError
		after time.Duration
	}{
		"the history index is being built: try again soon": {NotReadyError{}, 5 * time.Second},
		"the index of the history is being built: 0 records of 0 of 30 days read in 2s; try again in 5s": {
			NotReadyError{Days: 30, Left: 30, Took: 2 * time.Second}, 5 * time.Second,
		},
		"the index of the history is being built: 212000 records of 6 of 30 days read in 12s; try again in 48s": {
			NotReadyError{Records: 212_000, Days: 30, Left: 24, Took: 12 * time.Second}, 48 * time.Second,
		},
		"the index of the history is being built: 9 records of 1 of 3000 days read in 1s; try again in 1m0s": {
			NotReadyError{Records: 9, Days: 3000, Left: 2999, Took: time.Second}, time.Minute,
		},
		"the index of the history is being built: 9 records of 3 of 3 days read in 0s; try again in 1s": {
			NotReadyError{Records: 9, Days: 3, Took: time.Millisecond}, time.Second,
		},
		"the index of the history cannot be written: write: no space left on device; lists and the feed answer again when it can": {
			NotReadyError{Cause: full}, 5 * time.Second,
		},
	} {
		if c.err.Error() != text || c.err.After() != c.after || !errors.Is(&c.err, ErrNotReady) {
			t.Errorf("%q, %s; want %q, %s", c.err.Error(), c.err.After(), text, c.after)
		}
		if errors.Is(&c.err, syscall.ENOSPC) != (c.err.Cause != nil) {
			t.Errorf("%q: the cause is not told", text)
		}
	}
}

func TestBuildingSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for range 3 {
		r.end("a", statefs.Completed)
	}
	must(t, r.awaitApplied(t.Context()))
	r.stop()
	must(t, os.Remove(r.file(FileName)))
	store, err := Open(r.owner, nil) // it is not being built
	must(t, err)
	notReady := func() (e *NotReadyError) {
		if !errors.As(store.Ready(), &e) {
			t.Fatalf("%v", store.Ready())
		}
		return e
	}
	if e := notReady(); e.Days != 0 || e.After() != 5*time.Second {
		t.Errorf("before it begins: %+v", e)
	}
	days, err := r.owner.Days()
	must(t, err)
	store.progress(func(p *buildProgress) {
		*p = buildProgress{began: time.Now(), days: len(days), daysLeft: len(days)}
	})
	store.progress(func(p *buildProgress) { p.records += 2 })
	if e := notReady(); e.Records != 2 || e.Days != len(days) || e.Left != len(days) || e.Took <= 0 {
		t.Errorf("in the first day: %+v", e)
	}
	store.progress(func(p *buildProgress) {
		p.records++
		p.daysLeft--
	})
	if e := notReady(); e.Records != 3 || e.Left != len(days)-1 {
		t.Errorf("after the first day: %+v", e)
	}
	must(t, store.Close())
	r.open()
	if got := r.reading; got.records != 3 || got.days != len(days) || got.daysLeft != 0 {
		t.Errorf("after a whole build: %+v", got)
	}
}
