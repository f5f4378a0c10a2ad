package keeper

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Start starts c and returns when its program has been executed.
//
// Errors describe what is wrong with the command: a program that is missing or not executable, a
// missing directory, an argument or environment entry with a NUL byte or of more than 128 KiB, or
// an output that is not in append mode. The Process has one goroutine of its own, which ends when
// Done is closed.
func Start(c Command) (*Process, error) {
	p, err := launch(c, directly)
	if err != nil {
		return nil, err
	}
	go p.supervise()
	return p, nil
}

// forking runs a fork: it chooses the thread, and whether the child dies with that thread.
type forking func(fork func(dies bool))

// directly forks on the caller's thread. The children outlive this process.
func directly(fork func(dies bool)) { fork(false) }

// launch is Start without the goroutine that supervises the Process.
func launch(c Command, how forking) (*Process, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	program, err := findProgram(c.Args[0], c.Dir, c.Env)
	if err != nil {
		return nil, err
	}
	closeInherited()
	p := &Process{
		name:       c.Args[0],
		mark:       c.Mark,
		grace:      cmp.Or(c.Grace, DefaultGrace),
		scanOnExit: c.ScanOnExit,
		done:       make(chan struct{}),
	}
	if p.since, err = now(); err != nil {
		return nil, fmt.Errorf("start %q: read the clock: %w", c.Args[0], err)
	}
	if p.leader, err = c.fork(program, how); err != nil {
		return nil, err
	}
	p.started = time.Now()
	p.limit.Begin(c.Timeout, p.overdue)
	return p, nil
}

// closeInherited marks the descriptors that this process inherited as close-on-exec, once. Go opens
// all others that way.
var closeInherited = sync.OnceFunc(func() { setCloseOnExec(3) })

// findProgram is exec.LookPath, except that PATH is that of env and a path with a slash is relative
// to dir.
//
// It returns the path to execute. Errors wrap exec.ErrNotFound, exec.ErrDot, fs.ErrNotExist or
// fs.ErrPermission.
func findProgram(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		full := name
		if !filepath.IsAbs(name) {
			full = filepath.Join(dir, name)
		}
		if err := executable(full); err != nil {
			return "", explainProgram(name, full, err)
		}
		return name, nil
	}
	path, ok := lookupEnv(env, "PATH")
	if !ok {
		return "", fmt.Errorf("start %q: its environment has no PATH, set one or give the full path of the program: %w",
			name, exec.ErrNotFound)
	}
	var refused error
	for _, folder := range filepath.SplitList(path) {
		full := filepath.Join(folder, name)
		err := executable(full)
		if err == nil && !filepath.IsAbs(folder) {
			return "", fmt.Errorf("start %q: found through the relative entry %q of PATH, give its full path: %w", name,
				folder, exec.ErrDot)
		}
		if err == nil {
			return full, nil
		}
		// Go on searching, as a shell does, but report a file that exists and is not executable
		// rather than none.
		if refused == nil && errors.Is(err, fs.ErrPermission) {
			refused = explainProgram(name, full, err)
		}
	}
	if refused != nil {
		return "", refused
	}
	return "", fmt.Errorf("start %q: not in PATH (%s), install it or give its full path: %w", name, path, exec.ErrNotFound)
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return syscall.EISDIR
	}
	// Root passes access(2) when any x bit is set, and so does execve(2).
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}

func explainProgram(name, path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("start %q: there is no program %s: %w", name, path, fs.ErrNotExist)
	case errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("start %q: %s is a directory: %w", name, path, fs.ErrPermission)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("start %q: %s is not executable for this user (chmod +x): %w", name, path, fs.ErrPermission)
	default:
		return fmt.Errorf("start %q: %s: %w", name, path, err)
	}
}

// lookupEnv returns the value of the last entry with that name, as os/exec does with duplicates.
func lookupEnv(env []string, name string) (string, bool) {
	for _, entry := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			return v, true
		}
	}
	return "", false
}
