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
)

// The files of keeper N in the storage directory: the lock, which it holds for life, its socket, and what it had to say.
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
		text, isKeeper := strings.CutPrefix(e.Name(), "keeper-")
		text, isLock := strings.CutSuffix(text, ".lock")
		if n, err := strconv.Atoi(text); isKeeper && isLock && err == nil && n > 0 && e.Name() == lockName(n) {
			found = append(found, n)
		}
	}
	return found, nil
}

// takeNumber takes the lowest number that no living keeper has, and locks it until the file is closed.
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
		err := lock.Truncate(0)
		if err == nil {
			_, err = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		}
		if err != nil {
			return 0, nil, errors.Join(fmt.Errorf("take a number: %w", err), lock.Close())
		}
		return n, lock, nil
	}
}

// lockNumber locks the lock file of a keeper: unix.EWOULDBLOCK when it lives. It returns nil without an error when the file was
// removed or replaced meanwhile: a lock on a file without a name keeps nobody out.
func lockNumber(dir string, n, flags int) (*os.File, error) {
	path := filepath.Join(dir, lockName(n))
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|flags, 0o640)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	held, err := f.Stat()
	named, err2 := os.Lstat(path)
	if err != nil || err2 != nil || !os.SameFile(held, named) {
		return nil, f.Close()
	}
	return f, nil
}

// clearNumber removes the files of a keeper that is dead, and returns what it had to say last. alive says that it is not.
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
	said = lastWords(filepath.Join(dir, logName(n)))
	return said, false, errors.Join(endGroup(groupOf(lock), DefaultGrace), removeNumber(dir, n), lock.Close())
}

// noteGroup writes the control group of a keeper into its lock file, behind the PID, for whoever finds it dead. The third line says which
// file that is: in a copy of the storage the group is that of another one's keeper, which may live.
func noteGroup(lock *os.File, group string) error {
	info, err := lock.Stat()
	if err == nil {
		_, err = lock.WriteAt(fmt.Appendf(nil, "%d\n%s\n%s\n", os.Getpid(), group, identity(info)), 0)
	}
	return err
}

// groupOf reads it; "" when there is none, or none of this storage.
func groupOf(lock *os.File) string {
	info, err := lock.Stat()
	if err != nil {
		return ""
	}
	text := make([]byte, 8<<10)
	n, err := lock.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	lines := strings.Split(string(text[:n]), "\n")
	if len(lines) != 4 || lines[2] != identity(info) {
		return ""
	}
	return lines[1]
}

// identity tells a file from every other one of this machine that exists at the same time.
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

// lastWords returns the end of a keeper's log.
func lastWords(path string) string {
	const most = 4 << 10
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-most), most))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
