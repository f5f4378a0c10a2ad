package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Ctrl-C on a terminal opens the question. The terminal is a real one (pty(7)), whose line discipline turns
// the key into the signal.
func TestCtrlCPromptsOnATerminal(t *testing.T) {
	t.Parallel()
	const key, question = "\x03", "[c]ancel it, [l]eave it running, [Enter] keep watching? "
	tests := []struct {
		name  string
		steps []string // what is typed, each after the question has come up once more
		shown string
		code  int
	}{
		{"cancel", []string{"c\n"}, "cancel requested", 130},
		{"go on and then cancel", []string{"\n", "C\n"}, "cancel requested", 130},
		{"leave", []string{"l\n"}, "is left running", 75},
		{"a second Ctrl-C leaves at once", []string{key}, "is left running", 75},
	}
	storage := serve(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			term := newTerminal(t)
			cmd := exec.Command("jobdir", "run", "--storage", storage, "g/forever")
			cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
			term.start(t, cmd)
			term.waitFor(t, "begun", 1)
			for i, step := range test.steps {
				term.write(t, key)
				term.waitFor(t, question, i+1)
				term.write(t, step)
				if step == "\n" {
					term.waitFor(t, "still watching", 1)
				}
			}
			if got := exitCodeOf(t, cmd.Wait()); got != test.code {
				t.Errorf("exit code %d, want %d", got, test.code)
			}
			term.waitFor(t, test.shown, 1)
		})
	}
}

// serve runs a daemon with two jobs until the test ends, and returns its storage.
func serve(t *testing.T) (storage string) {
	t.Helper()
	dir := t.TempDir()
	jobs := filepath.Join(dir, "jobs")
	definition := "group: g\nname: forever\nunique: {on_hit: off}\nrun: [sh, -c, 'echo begun; sleep 600']\n" +
		"---\ngroup: g\nname: staged\nsteps:\n  - {name: gate, approve: true}\n"
	if err := errors.Join(os.Mkdir(jobs, 0o750), os.WriteFile(filepath.Join(jobs, "job.yaml"), []byte(definition),
		0o600)); err != nil {
		t.Fatal(err)
	}
	storage = filepath.Join(dir, "storage")
	cmd := exec.Command("jobdir", "serve", "--storage", storage, "--jobs", jobs, "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	talk := newScreen()
	cmd.Stderr = talk
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // if it has ended, Wait returns its status
		if err := cmd.Wait(); err != nil {
			t.Errorf("daemon: %v\n%s", err, talk.text())
		}
		endKeepers(t, storage)
	})
	talk.waitFor(t, "jobdir: serving", 1)
	return storage
}

// endKeepers ends the keepers of a storage with their commands, which would outlive the test.
func endKeepers(t *testing.T, storage string) {
	t.Helper()
	signalKeepers(t, storage, syscall.SIGTERM)
	until(t, "the keepers have ended", func() bool { return len(keeperLocks(t, storage)) == 0 })
}

// signalKeepers sends a signal to the keepers of a storage.
func signalKeepers(t *testing.T, storage string, signal syscall.Signal) {
	t.Helper()
	for _, lock := range keeperLocks(t, storage) {
		text, err := os.ReadFile(lock)
		if err != nil {
			continue // it has just ended
		}
		var pid int
		if _, err := fmt.Sscan(string(text), &pid); err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(pid, signal) // it may have ended
	}
}

func keeperLocks(t *testing.T, storage string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(storage, "keeper-*.lock"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func exitCodeOf(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatal(err)
	}
	return exit.ExitCode()
}

// terminal is the far end of a pty: what a person sees and types.
type terminal struct {
	*screen
	near, far *os.File
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("no pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { _ = far.Close() })
	if err := unix.IoctlSetPointerInt(int(far.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(far.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	near, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close() })
	// Ctrl-C also discards what was written and not read yet, and the kernel does that after it has sent the signal: on
	// a busy machine the answer to the signal is among it.
	settings, err := unix.IoctlGetTermios(int(near.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	settings.Lflag |= unix.NOFLSH
	if err := unix.IoctlSetTermios(int(near.Fd()), unix.TCSETS, settings); err != nil {
		t.Fatal(err)
	}
	return &terminal{screen: newScreen(), near: near, far: far}
}

// start runs a program whose terminal this is.
func (term *terminal) start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.near, term.near, term.near
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	// The end of a terminal is an error of its own (EIO).
	wait.Go(func() { _, _ = io.Copy(term.screen, term.far) })
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended; while it has the terminal open, the read goes on
		_ = cmd.Wait()
		_ = term.near.Close()
		_ = term.far.Close()
		wait.Wait()
	})
}

func (term *terminal) write(t *testing.T, text string) {
	t.Helper()
	if _, err := term.far.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// screen holds what was written, and can be waited on.
type screen struct {
	lock    sync.Mutex
	written bytes.Buffer
	changed chan struct{}
}

func newScreen() *screen { return &screen{changed: make(chan struct{}, 1)} }

func (s *screen) Write(p []byte) (int, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return s.written.Write(p)
}

func (s *screen) text() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.written.String()
}

// waitFor waits until a text was written so many times.
func (s *screen) waitFor(t *testing.T, want string, times int) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for strings.Count(s.text(), want) < times {
		select {
		case <-s.changed:
		case <-deadline:
			t.Fatalf("waited in vain for %q, %d times; there is:\n%s", want, times, s.text())
		}
	}
}
