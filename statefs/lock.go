package statefs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const lockFile = "jobdir.lock"

// LockedError says that another daemon holds the storage directory.
type LockedError struct {
	Dir string
	// PID is of the daemon that holds it, 0 when it has not written it yet.
	PID int
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("storage %s is in use by another daemon: stop that one, or choose another directory with --storage", e.Dir)
	}
	return fmt.Sprintf("storage %s is in use by the daemon with PID %d: stop that one, or choose another directory with --storage", e.Dir, e.PID)
}

// lock takes the lock of the directory, which ends with the process that holds it. See flock(2).
func (t *Tree) lock() (*os.File, error) {
	path := filepath.Join(t.dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|openNonblock, fileMode)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	err = flockPatiently(f)
	if errors.Is(err, unix.EWOULDBLOCK) {
		held := &LockedError{Dir: t.dir, PID: lockHolder(f)}
		_ = f.Close() // the holder is what matters
		return nil, held
	}
	if err == nil {
		err = errors.Join(f.Truncate(0), writePID(f))
	}
	if err != nil {
		_ = f.Close() // the first error counts
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// flockPatiently takes the lock unless a daemon has it. A shared lock is only somebody who asks for the holder: it goes at once, so
// it is waited for, a tenth of a second at most.
func flockPatiently(f *os.File) (err error) {
	for range 100 {
		if err = flock(f, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if shared := flock(f, unix.LOCK_SH|unix.LOCK_NB); shared != nil {
			return err
		}
		if err := flock(f, unix.LOCK_UN); err != nil {
			return err
		}
		<-time.After(time.Millisecond)
	}
	return err
}

// flock is flock(2), again when a signal cut it short.
func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func writePID(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func lockHolder(f *os.File) int {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

// Holder returns the PID of the daemon that holds the directory, and false when none does.
func (t *Tree) Holder() (pid int, held bool) {
	f, err := os.OpenFile(filepath.Join(t.dir, lockFile), os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }() // opened for reading
	if err := flock(f, unix.LOCK_SH|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return lockHolder(f), true
	}
	_ = flock(f, unix.LOCK_UN) // closing it does the same, later
	return 0, false
}
