package cli_test

import (
	"os"
	"os/exec"
	"testing"
)

// A filter asks for confirmation on a terminal, and any answer but yes changes nothing.
func TestFilterAsksForConfirmation(t *testing.T) {
	t.Parallel()
	storage := serve(t)
	run := exec.Command("jobdir", "run", "-d", "--storage", storage, "g/forever")
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, answer := range []struct {
		typed, shown string
		code         int
	}{{"\n", "[y/N]", 75}, {"no\n", "[y/N]", 75}, {"y\n", "cancel: 1 operation, 0 failures", 0}} {
		term := newTerminal(t)
		cmd := exec.Command("jobdir", "cancel", "--storage", storage, "--job", "g/forever")
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		term.start(t, cmd)
		term.waitFor(t, "1 operation matches. Cancel? [y/N] ", 1)
		term.write(t, answer.typed)
		if got := exitCodeOf(t, cmd.Wait()); got != answer.code {
			t.Errorf("%q: exit code %d, want %d", answer.typed, got, answer.code)
		}
		term.waitFor(t, answer.shown, 1)
	}
}
