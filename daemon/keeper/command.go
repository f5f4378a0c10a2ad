package keeper

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
)

// DefaultGrace is the time between SIGTERM and SIGKILL for a Command that names none.
const DefaultGrace = 10 * time.Second

// maxArgument is the longest argument or environment entry in bytes, its final NUL included (execve(2),
// MAX_ARG_STRLEN).
const maxArgument = 128 << 10

// A Command describes what to start and how to end it.
type Command struct {
	// Args is the program and its arguments; no shell interprets them. A program without a slash is
	// searched for in the PATH of Env. A program with a slash is used as given; a relative one is
	// relative to Dir.
	Args texts `json:"args"`

	// Dir is the working directory; empty means that of this process.
	Dir string `json:"-"`

	// Env is the whole environment as NAME=value entries. Nothing is added.
	Env texts `json:"env"`

	// Output becomes standard output and standard error. It must have been opened with O_APPEND, so
	// that other writers (and the command's descendants) do not overwrite each other. The caller
	// keeps the file and may close it as soon as Start has returned.
	Output *os.File `json:"-"`

	// Grace is the time between SIGTERM and SIGKILL; 0 is DefaultGrace.
	Grace time.Duration `json:"grace_ns"`

	// Mark holds entries of Env that together distinguish this command's processes from all others,
	// for example JOBDIR_ID=... and JOBDIR_MARK=.... Descendants inherit them, and are found by
	// them after they have left the process group. Commands with equal marks end each other's
	// descendants. Empty: only the group is ended.
	Mark texts `json:"mark,omitempty"`

	// Key identifies this command among all that one keeper process is ever asked to start: a
	// second start of the same key returns the existing command. Start in this process ignores it.
	Key Key `json:"-"`

	// Label is text that the caller gets back when it finds the command again, such as the name of
	// its item: any bytes without NUL. Start in this process ignores it.
	Label string `json:"-"`

	// Timeout is how long the command may run. Then it is ended, and Exit.TimedOut is set. Time in
	// which it is stopped does not count. 0 is no limit.
	Timeout time.Duration `json:"timeout_ns,omitempty"`

	// Report is the file for the exit report, relative to the storage directory of a keeper
	// process; see ReadReport. Empty: no report is written. Start in this process ignores it.
	Report string `json:"report,omitempty"`

	// Wanted is called right before a keeper starts the command, which may be long after the order
	// was sent: the keeper may have been stopped. If it returns false, the command does not begin.
	// nil means always wanted.
	Wanted func() bool `json:"-"`

	// ScanOnExit makes the keeper also search for processes that carry the marks, and end them,
	// when the command exits by itself. That is a pass over /proc (some milliseconds); leave it off
	// for a command that is one of thousands. The rest of the process group is ended in any case.
	ScanOnExit bool `json:"scan_on_exit,omitempty"`
}

// texts is a list of texts without NUL. On the wire each is followed by a NUL byte, in base64.
type texts []string

// MarshalText implements encoding.TextMarshaler.
func (t texts) MarshalText() ([]byte, error) {
	var packed []byte
	for _, text := range t {
		packed = append(append(packed, text...), 0)
	}
	return base64.StdEncoding.AppendEncode(nil, packed), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *texts) UnmarshalText(encoded []byte) error {
	packed, err := base64.StdEncoding.AppendDecode(nil, encoded)
	if err != nil {
		return err
	}
	*t = nil
	if list, ended := bytes.CutSuffix(packed, []byte{0}); ended {
		*t = strings.Split(string(list), "\x00")
	} else if len(packed) > 0 {
		return errors.New("a list without an end")
	}
	return nil
}

// check returns an error if c cannot be started as given.
func (c *Command) check() error {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return errors.New("start command: no program is given")
	}
	for i, a := range c.Args {
		if err := checkText(a); err != nil {
			return fmt.Errorf("start %q: argument %d: %w", c.Args[0], i, err)
		}
	}
	for _, e := range c.Env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			return fmt.Errorf("start %q: environment entry %q is not NAME=value", c.Args[0], e)
		}
		if err := checkText(e); err != nil {
			return fmt.Errorf("start %q: environment variable %s: %w", c.Args[0], name, err)
		}
	}
	for _, m := range c.Mark {
		if !slices.Contains(c.Env, m) {
			return fmt.Errorf("start %q: mark %q is not in the environment", c.Args[0], m)
		}
	}
	if c.Grace < 0 {
		return fmt.Errorf("start %q: grace period %s is negative", c.Args[0], c.Grace)
	}
	if c.Timeout < 0 {
		return fmt.Errorf("start %q: timeout %s is negative", c.Args[0], c.Timeout)
	}
	if strings.ContainsRune(c.Label, 0) {
		return fmt.Errorf("start %q: label %q contains a NUL byte", c.Args[0], c.Label)
	}
	return c.checkFiles()
}

func (c *Command) checkFiles() error {
	if strings.ContainsRune(c.Dir, 0) {
		return fmt.Errorf("start %q: directory %q contains a NUL byte", c.Args[0], c.Dir)
	}
	if c.Dir != "" {
		info, err := os.Stat(c.Dir)
		if err != nil {
			return fmt.Errorf("start %q: working directory: %w", c.Args[0], err)
		}
		if !info.IsDir() {
			return fmt.Errorf("start %q: working directory %s: %w", c.Args[0], c.Dir, syscall.ENOTDIR)
		}
	}
	if c.Output == nil {
		return fmt.Errorf("start %q: no output file is given", c.Args[0])
	}
	var flags int
	err := files.WithDescriptor(c.Output, func(fd int) (err error) {
		flags, err = unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		return err
	})
	if err != nil {
		return fmt.Errorf("start %q: output: %w", c.Args[0], err)
	}
	if flags&syscall.O_APPEND == 0 {
		return fmt.Errorf("start %q: output %s was not opened with O_APPEND", c.Args[0], c.Output.Name())
	}
	return nil
}

func checkText(s string) error {
	if i := strings.IndexByte(s, 0); i >= 0 {
		return fmt.Errorf("contains a NUL byte at position %d: %w", i, syscall.EINVAL)
	}
	if len(s)+1 > maxArgument {
		return fmt.Errorf("has %d bytes and at most %d are possible, pass it in a file: %w", len(s),
			maxArgument-1, syscall.E2BIG)
	}
	return nil
}

func (c *Command) fork(program string, how forking) (*leader, error) {
	null, err := openDescriptor(os.DevNull, 0)
	if err != nil {
		return nil, fmt.Errorf("start %q: standard input: %w", c.Args[0], err)
	}
	defer func() { _ = unix.Close(null) }() // nothing was written to it
	var l *leader
	var forkErr error
	err = files.WithDescriptor(c.Output, func(fd int) error { // Fd would change the mode of the caller's file
		env := append([]string{}, c.Env...) // nil would mean the environment of this process
		attr := &syscall.ProcAttr{Dir: c.Dir, Env: env, Files: []uintptr{uintptr(null), uintptr(fd), uintptr(fd)}}
		how(func(dies bool) { l, forkErr = children.fork(program, c.Args, attr, dies) })
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("start %q: output: %w", c.Args[0], err)
	}
	if forkErr != nil {
		return nil, explainFork(c.Args[0], program, forkErr)
	}
	return l, nil
}

// explainFork describes errors of execve(2) and fork(2) for a program that was found and is
// executable.
func explainFork(name, program string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("start %q: the interpreter that %s names in its first line, or its loader, is missing: %w", name,
			program, err)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("start %q: %s is not a program for this machine, a script needs a first line like #!/bin/sh: %w",
			name, program, err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("start %q: %s may not be executed (its interpreter, or a file system mounted noexec): %w", name,
			program, err)
	case errors.Is(err, syscall.E2BIG):
		return fmt.Errorf("start %q: arguments and environment together are too long, pass data in files: %w", name, err)
	case errors.Is(err, syscall.EAGAIN):
		return fmt.Errorf("start %q: the limit of processes is reached (ulimit -u, pids of the cgroup): %w", name, err)
	case machine.OutOfFiles(err):
		return fmt.Errorf("start %q: the limit of open files is reached (ulimit -n): %w", name, err)
	case errors.Is(err, syscall.ETXTBSY):
		return fmt.Errorf("start %q: %s is open for writing in another process: %w", name, program, err)
	default:
		return fmt.Errorf("start %q: %w", name, err)
	}
}
