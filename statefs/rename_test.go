package statefs

import (
	"errors"
	"io/fs"
	"sync"
	"testing"
)

// TestOfTwoRenamesOneWins: the rename is the compare-and-swap of the state machine.
func TestOfTwoRenamesOneWins(t *testing.T) {
	t.Parallel()
	o := own(t)
	id := submit(t, o.Tree).ID
	targets := []State{Running, Paused}
	for round := range 2000 {
		errs := make([]error, len(targets))
		var wg sync.WaitGroup
		for i, to := range targets {
			wg.Go(func() { errs[i] = o.Move(id, Queued, to) })
		}
		wg.Wait()
		winner := 0
		if errs[0] != nil {
			winner = 1
		}
		if errs[winner] != nil || !errors.Is(errs[1-winner], fs.ErrNotExist) {
			t.Fatalf("round %d: %v and %v", round, errs[0], errs[1])
		}
		check(t, o.Move(id, targets[winner], Queued))
	}
	wantNames(t, o.JobsDir(), MarkerName(id, Queued))
}

// TestOfTwoRenamesToOneNameOneWins: of two markers of one operation that race for one name, one
// keeps its old name.
func TestOfTwoRenamesToOneNameOneWins(t *testing.T) {
	t.Parallel()
	o := own(t)
	id := submit(t, o.Tree).ID
	for round := range 500 {
		check(t, o.RestoreMarker(id, Paused, testTime))
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i, from := range []State{Queued, Paused} {
			wg.Go(func() { errs[i] = o.Move(id, from, Running) })
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("round %d: %v and %v", round, errs[0], errs[1])
		}
		for i, from := range []State{Queued, Paused} {
			if errs[i] == nil {
				continue
			}
			if !errors.Is(errs[i], fs.ErrExist) {
				t.Fatalf("round %d: %v", round, errs[i])
			}
			check(t, o.RemoveName(MarkerName(id, from)))
		}
		check(t, o.Move(id, Running, Queued))
	}
}
