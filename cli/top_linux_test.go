package cli_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The view on a real terminal: it follows events without input, adapts to the size, and restores the
// terminal.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	storage := serve(t)
	jobdir := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("jobdir", append(args, "--storage", storage)...).Output()
		if err != nil {
			t.Fatalf("jobdir %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	term := newTerminal(t)
	size := func(cols, rows uint16) {
		t.Helper()
		if err := unix.IoctlSetWinsize(int(term.far.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: cols, Row: rows}); err != nil {
			t.Fatal(err)
		}
	}
	size(150, 30)
	before, err := unix.IoctlGetTermios(int(term.near.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("jobdir", "top", "--storage", storage)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	term.start(t, cmd)
	term.waitFor(t, "\x1b[?1049h", 1)
	term.waitFor(t, "0 running, 0 paused, 0 queued", 1)
	id := jobdir("run", "-d", "g/forever")
	term.waitFor(t, id+"  default  running", 1)
	term.waitFor(t, "1 running, 0 paused", 1)
	jobdir("pause", id)
	term.waitFor(t, id+"  default  paused", 1)
	jobdir("cancel", id)
	term.waitFor(t, "0 running, 0 paused", 2)
	size(20, 5)
	term.waitFor(t, "0 running, 0 paused,\x1b[K", 1)
	term.write(t, "xq")
	if code := exitCodeOf(t, cmd.Wait()); code != 0 {
		t.Errorf("exit code %d", code)
	}
	term.waitFor(t, "\x1b[?25h\x1b[?1049l", 1)
	after, err := unix.IoctlGetTermios(int(term.near.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal is %+v, was %+v, %v", after, before, err)
	}

	// Ctrl-C ends it as well.
	again := newTerminal(t)
	cmd = exec.Command("jobdir", "top", "--storage", storage)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	again.start(t, cmd)
	again.waitFor(t, "Waiting (0)", 1)
	again.write(t, "\x03")
	if code := exitCodeOf(t, cmd.Wait()); code != 0 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
	again.waitFor(t, "\x1b[?1049l", 1)
}
