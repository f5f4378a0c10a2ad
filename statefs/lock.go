package statefs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
)

const lockFile = "jobdir.lock"

// LockedError reports that another daemon holds the storage directory.
type LockedError struct {
	Dir string
	// PID is the daemon that holds it, 0 if it has not written its PID yet.
	PID int
}

func (e *LockedError) Error() string {
	holder := "another daemon"
	if e.PID != 0 {
		holder = fmt.Sprintf("the daemon with PID %d", e.PID)
	}
	return fmt.Sprintf("storage %s is in use by %s: stop that one, or choose another directory with --storage", e.Dir, holder)
}

// lock is the lock of a storage directory. It ends with the process that holds it. It is a files.Flock(2)
// on jobdir.lock, which also contains the PID, and one on the folder jobs/, which cannot be
// replaced without the daemon noticing.
type lock struct {
	path   string
	clear  func() error // moves a file of the wrong kind away from path
	mu     sync.Mutex   // guards file
	file   *os.File
	folder *os.File
}

// lockWait bounds the wait for a dead or exiting holder, lockTick is the time between two tries,
// and lockTries is how often a holder must be found alive: a kill that was just sent may not be
// visible yet.
const (
	lockWait  = 2 * time.Second
	lockTick  = 10 * time.Millisecond
	lockTries = 3
)

// lock takes the lock of the directory. A killed daemon keeps the lock until the kernel has freed
// its memory. If it was killed while it started a command, its forked child briefly keeps the lock
// until the exec. The function therefore waits for a holder that is dead or exiting.
func (s *storage) lock() (l *lock, err error) {
	for began, alive := time.Now(), 0; ; {
		l, err = s.tryLock()
		held, ok := errors.AsType[*LockedError](err)
		if !ok || held.PID == os.Getpid() || time.Since(began) >= lockWait {
			return l, err
		}
		if held.PID != 0 && !machine.Exiting(held.PID) { // otherwise it has the lock and is about to write its PID
			if alive++; alive == lockTries {
				return l, err
			}
		}
		<-time.After(lockTick)
	}
}

func (s *storage) tryLock() (*lock, error) {
	l := s.corrupt.newLock()
	var err error
	if l.folder, err = os.Open(s.JobsDir()); err != nil {
		return nil, fmt.Errorf("lock %s: %w", s.JobsDir(), err)
	}
	l.file, err = l.lockNamed()
	if errors.Is(err, unix.EWOULDBLOCK) {
		pid, _ := readLock(l.path)
		return nil, errors.Join(&LockedError{Dir: s.dir, PID: pid}, l.folder.Close())
	}
	if err != nil {
		return nil, errors.Join(err, l.folder.Close())
	}
	switch err := flockExclusive(l.folder); {
	case errors.Is(err, unix.EWOULDBLOCK):
		held := &LockedError{Dir: s.dir, PID: machine.LockHolder(l.folder)}
		_ = l.release() // the holder matters, not this error
		return nil, held
	case err != nil && !unlockable(err):
		return nil, errors.Join(fmt.Errorf("lock %s: %w", s.JobsDir(), err), l.release())
	}
	if err := files.WritePID(l.file); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w; %s", l.path, err, adviceFor(err)), l.release())
	}
	return l, nil
}

// newLock returns the lock of the storage, which is not taken yet.
func (c *corruptFolder) newLock() *lock {
	return &lock{path: filepath.Join(c.dir, lockFile), clear: func() error { return c.clearName(lockFile) }}
}

// unlockable reports whether err means that a folder cannot be locked on this file system: NFS
// requires a writable descriptor for a lock.
func unlockable(err error) bool {
	return errors.Is(err, unix.EBADF) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOLCK) ||
		errors.Is(err, unix.EINVAL)
}

// lockNamed opens and locks the lock file. It retries if the file was replaced in between: a lock
// on an unlinked file would not exclude other daemons.
func (l *lock) lockNamed() (*os.File, error) {
	path := l.path
	for {
		if err := l.clear(); err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		f, err := files.OpenFile(path, os.O_RDWR|os.O_CREATE)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w; %s", path, err, adviceFor(err))
		}
		if err := flockExclusive(f); err != nil {
			_ = f.Close() // the first error counts
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if files.IsNamed(f, path) {
			return f, nil
		}
		_ = f.Close() // this also releases the lock
	}
}

func (l *lock) restore() (made bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if files.IsNamed(l.file, l.path) {
		return false, nil
	}
	f, err := l.lockNamed()
	if err != nil {
		return false, err
	}
	if err := files.WritePID(f); err != nil {
		return false, errors.Join(fmt.Errorf("lock %s: %w", l.path, err), f.Close())
	}
	old := l.file
	l.file = f
	return true, old.Close()
}

func (l *lock) release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Unlock explicitly: a child that another goroutine is starting holds a copy of the descriptor
	// until its exec.
	unlocked := files.Flock(l.folder, unix.LOCK_UN)
	if unlocked != nil && unlockable(unlocked) {
		unlocked = nil
	}
	return errors.Join(unlocked, l.folder.Close(), files.Flock(l.file, unix.LOCK_UN), l.file.Close())
}

// flockExclusive takes the lock unless a daemon holds it. A shared lock belongs to a process that
// only checks for a holder and releases it at once, so the function retries for up to a tenth of a
// second.
func flockExclusive(f *os.File) (err error) {
	for range 100 {
		if err = files.Flock(f, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if shared := files.Flock(f, unix.LOCK_SH|unix.LOCK_NB); shared != nil {
			return err
		}
		if err := files.Flock(f, unix.LOCK_UN); err != nil {
			return err
		}
		<-time.After(time.Millisecond)
	}
	return err
}

// readLock returns the PID in the lock file, 0 if there is none, and whether the file is locked.
func readLock(path string) (pid int, held bool) {
	f, err := os.OpenFile(path, os.O_RDONLY|files.Nonblock, 0)
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }() // opened for reading
	if !isLocked(f) {
		return 0, false
	}
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0, true
	}
	pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	return pid, true
}

// isLocked reports whether another process has locked an open file.
func isLocked(f *os.File) bool {
	if err := files.Flock(f, unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return errors.Is(err, unix.EWOULDBLOCK)
	}
	_ = files.Flock(f, unix.LOCK_UN) // closing it does the same, later
	return false
}
