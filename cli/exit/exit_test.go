package exit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	refused := func(status int) error { return fmt.Errorf("start: %w", &client.Error{Status: status, Message: "no"}) }
	tests := []struct {
		name string
		err  error
		want int
	}{
		{"nothing", nil, 0},
		{"an outcome", With(130), 130},
		{"wrong use", Usagef("no"), 64},
		{"not found", NotFoundf("no"), 66},
		{"locked", fmt.Errorf("own: %w", &statefs.LockedError{PID: 1}), 73},
		{"port in use", fmt.Errorf("listen: %w", ErrPortInUse), 71},
		{"no daemon", fmt.Errorf("ls: %w", &client.UnreachableError{Err: fs.ErrNotExist}), 69},
		{"cut off", &client.CutError{Err: errors.New("gone")}, 75},
		{"over time", context.DeadlineExceeded, 75},
		{"not live", fmt.Errorf("operation: %w", statefs.ErrNotLive), 66},
		{"bad request", refused(400), 64},
		{"no token", refused(401), 77},
		{"forbidden", refused(403), 77},
		{"unknown", refused(404), 66},
		{"pruned", refused(410), 66},
		{"draining", refused(503), 75},
		{"broken daemon", refused(500), 70},
		{"full disk", refused(507), 70},
		{"anything else", errors.New("no"), 70},
		{"one of several", errors.Join(errors.New("no"), refused(404)), 66},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := Code(test.err); got != test.want {
				t.Errorf("Code(%v) = %d, want %d", test.err, got, test.want)
			}
		})
	}
}

// An outcome is never mistaken for an error of the program, nor one outcome for another.
func TestOutcomesAreUnambiguous(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{
		InUse: true, PortInUse: true, Person: true, Usage: true, NotFound: true,
		NoDaemon: true, Internal: true, Temporary: true, Forbidden: true,
	}
	for _, result := range []statefs.Result{statefs.Success, statefs.Failure, statefs.Partial, statefs.CancelledResult} {
		code := Outcome(result)
		if seen[code] {
			t.Errorf("exit code %d of %s means something else too", code, result)
		}
		seen[code] = true
	}
}
