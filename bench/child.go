package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// roleVariable makes this program play a part in the run of another one.
const (
	roleVariable     = "BENCH_ROLE"
	argumentVariable = "BENCH_ARGUMENT"
)

// child is a process of the run.
type child struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	talk  tailBuffer // the end of its stderr, for messages
	grace time.Duration
	slow  time.Duration // how long an answer may take
	ended chan struct{}
	err   error
}

// starter starts processes on one thread that lives as long as the run: the kernel ends the children with the thread
// that started them, which covers the one end of the run that cannot clean up, SIGKILL.
var starter = sync.OnceValue(func() chan func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// start starts a process whose stdin stays open until stop.
func start(ctx context.Context, name string, cmd *exec.Cmd) (*child, error) {
	c := &child{name: name, cmd: cmd, grace: 20 * time.Second, slow: patience, ended: make(chan struct{})}
	var err error
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	// A pipe of our own: that of exec.Cmd is closed by Wait, which runs from the start.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.out, cmd.Stdout = bufio.NewReader(read), write
	if cmd.Stderr == nil {
		cmd.Stderr = &c.talk
	}
	// a Ctrl-C is for us; we stop the children
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	if err = errors.Join(<-started, write.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), read.Close())
	}
	go func() {
		defer close(c.ended)
		c.err = cmd.Wait()
	}()
	if ctx.Err() != nil {
		return nil, errors.Join(context.Cause(ctx), c.stop())
	}
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// stop ends the process: SIGTERM, and SIGKILL when that is not enough.
func (c *child) stop() error {
	_ = c.in.Close()                          // it may have ended
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // the same
	late := time.AfterFunc(c.grace, func() { _ = c.cmd.Process.Kill() })
	<-c.ended
	if !late.Stop() {
		return fmt.Errorf("%s did not end within %s and was killed\n%s", c.name, c.grace, c.talk.String())
	}
	return nil
}

// answer reads one line of JSON from the process.
func (c *child) answer(into any) error {
	type line struct {
		text string
		err  error
	}
	got := make(chan line, 1)
	go func() {
		text, err := c.out.ReadString('\n')
		got <- line{text, err}
	}()
	late := time.NewTimer(c.slow)
	defer late.Stop()
	select {
	case l := <-got:
		if l.err != nil {
			return fmt.Errorf("%s said nothing: %w\n%s", c.name, l.err, c.talk.String())
		}
		return json.Unmarshal([]byte(l.text), into)
	case <-late.C:
		return fmt.Errorf("%s said nothing for %s\n%s", c.name, c.slow, c.talk.String())
	}
}

// tailBuffer keeps the end of what is written.
type tailBuffer struct {
	mu   sync.Mutex
	data []byte
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const keep = 8 << 10
	t.data = append(t.data, p...)
	if len(t.data) > 2*keep {
		t.data = append(t.data[:0], t.data[len(t.data)-keep:]...)
	}
	return len(p), nil
}

func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.data)
}

// startRole starts this program again in a role. argument reaches it as JSON; its first line of output is read into
// into.
func startRole(ctx context.Context, role string, argument, into any) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	return startRoleOf(ctx, self, role, argument, into)
}

// startRoleOf is startRole for another build of this program.
func startRoleOf(ctx context.Context, program, role string, argument, into any) (*child, error) {
	text, err := json.Marshal(argument)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	cmd := exec.Command(program) //nolint:noctx // stop ends it, in order
	cmd.Env = append(os.Environ(), roleVariable+"="+role, argumentVariable+"="+string(text))
	c, err := start(ctx, role, cmd)
	if err != nil {
		return nil, err
	}
	if role == "load" {
		c.slow = 10 * patience // it may have a hundred thousand operations to begin with
	}
	if err := c.answer(into); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// play is the main function of a role. It ends with SIGTERM, or when the run is gone and with it stdin.
func play(role string) int {
	roles := map[string]func(context.Context, []byte) error{
		"server": playServer, "bare": playBare, "poller": playPoller, "writer": playWriter, "renamer": playRenamer,
		"load": playLoad, "floor": playFloor,
	}
	part, ok := roles[role]
	if !ok {
		fmt.Fprintf(os.Stderr, "bench: there is no role %q\n", role)
		return 2
	}
	ctx, stop := terminated()
	defer stop()
	if err := part(ctx, []byte(os.Getenv(argumentVariable))); err != nil {
		fmt.Fprintf(os.Stderr, "bench %s: %v\n", role, err)
		return 1
	}
	return 0
}

// buildProgram builds the program of this tree as make build does.
func buildProgram(ctx context.Context, into string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/jobdir/jobdir").Output()
	if err != nil {
		return "", fmt.Errorf("find the source tree; bench runs inside it: %w", err)
	}
	binary := filepath.Join(into, "jobdir")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, ".")
	cmd.Dir = strings.TrimSpace(string(root)) // as the main module, so that the build cache has what other tests built
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return binary, nil
}
