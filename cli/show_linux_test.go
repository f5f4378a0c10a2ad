package cli_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Colours are for a terminal, and for who wants them.
func TestStepsAreColouredOnATerminal(t *testing.T) {
	t.Parallel()
	storage := serve(t)
	out, err := exec.Command("jobdir", "submit", "g/staged", "--storage", storage).Output()
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(string(out))
	show := func(want string, env ...string) {
		t.Helper()
		term := newTerminal(t)
		cmd := exec.Command("jobdir", "show", id, "--storage", storage)
		cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0", "NO_COLOR=", "TERM=xterm"), env...)
		term.start(t, cmd)
		term.waitFor(t, want, 1)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	show("\x1b[2m○ 1 gate  pending\x1b[0m")
	show("  ○ 1 gate  pending", "NO_COLOR=1")
	show("  ○ 1 gate  pending", "TERM=dumb")
	piped, err := exec.Command("jobdir", "show", id, "--storage", storage).Output()
	if err != nil || !strings.Contains(string(piped), "  ○ 1 gate  pending") {
		t.Errorf("in a pipe: %s, %v", piped, err)
	}
	if err := exec.Command("jobdir", "approve", id, "--storage", storage).Run(); err != nil {
		t.Error(err)
	}
}
