package work

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
)

// TestResourceUsageAddsUp: resource usage adds up over the commands of a run, and over runs.
func TestResourceUsageAddsUp(t *testing.T) {
	t.Parallel()
	var first, second, none resourceUsage
	first.add(keeper.Exit{UserSeconds: 1, SystemSeconds: 2, PeakMemory: 100})
	first.add(keeper.Exit{UserSeconds: 1, PeakMemory: 300})
	second.add(keeper.Exit{SystemSeconds: 1, PeakMemory: 200})
	if none.addTo(nil) != nil {
		t.Error("nothing ended, and something was used")
	}
	all := second.addTo(none.addTo(first.addTo(nil)))
	if want := (statefs.ResourceUse{UserSeconds: 2, SystemSeconds: 3, PeakMemory: 300}); *all != want {
		t.Errorf("%+v, want %+v", *all, want)
	}
}

// TestCausesComeBack ends a command for each cause: the next daemon reads the same cause from its keeper, and takes no
// error for a cancel.
func TestCausesComeBack(t *testing.T) {
	t.Parallel()
	stalled := &Error{Code: "stalled", Err: fmt.Errorf("%w for 5s", ErrStalled)}
	unknown := errors.New("no keeper answers")
	for _, c := range []struct {
		cause, want error
		text        string
	}{
		{ErrCancelled, ErrCancelled, "the operation is cancelled"},
		{ErrInterrupted, ErrInterrupted, "the daemon stops"},
		{stalled, ErrStalled, stalled.Error()},
		{unknown, nil, "no keeper answers"},
	} {
		got := causeOf(keeper.Exit{Cause: causeText(c.cause)})
		if got == nil || got.Error() != c.text || c.want != nil && !errors.Is(got, c.want) ||
			c.want == nil && errors.Is(got, ErrCancelled) {
			t.Errorf("%v: the next daemon reads %v", c.cause, got)
		}
	}
	for _, from := range statefs.LiveStates() {
		for _, cause := range []statefs.Cause{statefs.CauseCancel, statefs.CauseMarkerMissing, statefs.CauseReject} {
			if _, err := statefs.Next(from, cause); err == nil && ErrorOf(cause) == nil {
				t.Errorf("%s: no error with which work is ended", cause)
			}
		}
	}
}
