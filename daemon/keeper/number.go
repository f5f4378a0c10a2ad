package keeper

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
)

// The files of keeper N in the storage directory: its lock, which it holds for life, its socket,
// and its log.
func lockName(n int) string   { return fmt.Sprintf("keeper-%d.lock", n) }
func socketName(n int) string { return fmt.Sprintf("keeper-%d.sock", n) }
func logName(n int) string    { return fmt.Sprintf("keeper-%d.log", n) }

// numbers lists the keepers that have a lock file, alive or not.
func numbers(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("find keepers: %w", err)
	}
	var found []int
	for _, e := range entries {
		var n int
		if _, err := fmt.Sscanf(e.Name(), "keeper-%d.lock", &n); err == nil && n > 0 && e.Name() == lockName(n) {
			found = append(found, n)
		}
	}
	return found, nil
}

// place is what a keeper holds of its storage: the directory, its number there with the lock that shows that it lives,
// and its control group.
type place struct {
	named  string   // the directory as an absolute path, for messages
	home   *os.File // the directory, wherever it is moved
	number int
	lock   *os.File
	cgroup string // folder of a control group of its own, if any
}

// takeNumber takes the lowest number that no living keeper holds. The number stays locked until the
// file is closed.
func takeNumber(dir string) (n int, lock *os.File, err error) {
	for n = 1; ; {
		lock, err = lockNumber(dir, n, os.O_CREATE)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			n++
			continue
		case err != nil:
			return 0, nil, fmt.Errorf("take a number: %w", err)
		case lock == nil:
			continue
		}
		if err := files.WritePID(lock); err != nil {
			return 0, nil, errors.Join(fmt.Errorf("take a number: %w", err), lock.Close())
		}
		return n, lock, nil
	}
}

// lockNumber locks the lock file of a keeper. It returns unix.EWOULDBLOCK when the keeper lives,
// and nil without an error when the file was removed or replaced since it was opened: a lock on a
// file without a name keeps no process out.
func lockNumber(dir string, n, flags int) (*os.File, error) {
	path := filepath.Join(dir, lockName(n))
	f, err := files.OpenFile(path, os.O_RDWR|flags)
	if err != nil {
		return nil, err
	}
	if err := files.Flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	if !files.IsNamed(f, path) {
		return nil, f.Close()
	}
	return f, nil
}

// isStopped reports whether the process in the lock file of a keeper is stopped.
func isStopped(dir string, n int) bool {
	f, err := files.OpenRegular(filepath.Join(dir, lockName(n)))
	if err != nil {
		return false
	}
	defer f.Close()
	pid, err := strconv.Atoi(linesOf(f)[0])
	if err != nil {
		return false
	}
	s, err := readStat(pid)
	return err == nil && s.stopped()
}

// clearNumber ends the control group of a dead keeper, removes its files, and returns the end of
// its log. alive means that the keeper lives.
func clearNumber(dir string, n int) (said string, alive bool, err error) {
	lock, err := lockNumber(dir, n, 0)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return "", true, nil
	case errors.Is(err, fs.ErrNotExist):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("look whether keeper %d lives: %w", n, err)
	case lock == nil:
		return "", false, nil
	}
	said = logTail(filepath.Join(dir, logName(n)))
	return said, false, errors.Join(endGroup(groupOf(lock), DefaultGrace), removeNumber(dir, n), lock.Close())
}

// noteGroup writes the control group of a keeper into its lock file, after the PID, for the process
// that finds it dead. The third line identifies the lock file itself: in a copy of the storage, the
// group belongs to the keeper of the original, which may live.
func noteGroup(lock *os.File, group string) error {
	info, err := lock.Stat()
	if err == nil {
		_, err = lock.WriteAt(fmt.Appendf(nil, "%d\n%s\n%s\n", os.Getpid(), group, identity(info)), 0)
	}
	return err
}

// groupOf reads the group from a lock file. It returns "" when there is none, or when the file is a
// copy.
func groupOf(lock *os.File) string {
	info, err := lock.Stat()
	if err != nil {
		return ""
	}
	lines := linesOf(lock)
	if len(lines) != 4 || lines[2] != identity(info) {
		return ""
	}
	return lines[1]
}

// linesOf returns the lines of a lock file, and an empty one after them.
func linesOf(lock *os.File) []string {
	text, _ := io.ReadAll(io.NewSectionReader(lock, 0, 8<<10)) // a part of it names no keeper
	return strings.Split(string(text), "\n")
}

// identity distinguishes a file from every other file that exists on this machine at the same time.
func identity(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}

// removeNumber removes the files of a keeper. The caller holds the lock.
func removeNumber(dir string, n int) error {
	var errs []error
	for _, name := range []string{socketName(n), logName(n), lockName(n)} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// logTail returns the end of a keeper's log, "" if it cannot be read.
func logTail(path string) string {
	text, _, _ := files.ReadEnd(path, 0, 4<<10)
	return strings.TrimSpace(string(text))
}
