package torture

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/internal/prooftest"
)

// TestManyDaemonsOnOneDirectory starts twenty daemons at once. One serves, the others name it and exit; when
// it is killed, the next daemon can take the storage.
func TestManyDaemonsOnOneDirectory(t *testing.T) {
	t.Parallel()
	const many = 20
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	rounds := prooftest.Count(1, 2, 20)
	for round := range rounds {
		type outcome struct {
			d   *daemon
			err error
		}
		outcomes := make(chan outcome, many)
		for range many {
			go func() {
				d, err := r.tryStart()
				outcomes <- outcome{d, err}
			}()
		}
		var winner *daemon
		var losers []outcome
		for range many {
			switch o := <-outcomes; {
			case o.err == nil && winner == nil:
				winner = o.d
			case o.err == nil:
				t.Fatalf("round %d: two daemons serve, %d and %d", round, winner.cmd.Process.Pid, o.d.cmd.Process.Pid)
			default:
				losers = append(losers, o)
			}
		}
		if winner == nil {
			t.Fatalf("round %d: no daemon serves: %v", round, losers)
		}
		name := fmt.Sprintf("the daemon with PID %d", winner.cmd.Process.Pid)
		for _, o := range losers {
			exit, ok := errors.AsType[*exec.ExitError](o.d.err)
			if !errors.Is(o.err, errEnded) || !ok || exit.ExitCode() != 73 || !strings.Contains(o.d.stderr.String(), name) {
				t.Errorf("round %d: a second daemon ends with %v, want exit code 73 and %q", round, o.err, name)
			}
		}
		if _, err := winner.Submit(t.Context(), "t", "quick", nil); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		winner.kill()
	}
	r.start().stop(t)
	figures.add(t, "rounds of twenty daemons at once, one served in each", rounds)
}
