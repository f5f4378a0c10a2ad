package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxDays bounds the folders that are kept open: an operation may be written to for days after it was submitted, but few days
// are busy at once.
const maxDays = 16

// dayFolder is one folder of operations/.
type dayFolder struct {
	*syncFolder
	raw   syscall.RawConn // for calls that take a descriptor; it keeps the descriptor from being closed under them
	named atomic.Bool     // its own name in operations/ is known to be on the disk
}

// day returns the folder of a day, made when it is missing.
func (t *Tree) day(day string) (*dayFolder, error) {
	t.daysMu.Lock()
	defer t.daysMu.Unlock()
	if folder := t.days[day]; folder != nil {
		return folder, nil
	}
	if err := makeFolder(filepath.Join(t.dir, operationsDir, day)); err != nil {
		return nil, fmt.Errorf("make the folder of the day: %w", err)
	}
	if len(t.days) >= maxDays {
		// Others may be about to sync one of these, and closing it would fail them. They still hold it; the garbage collector
		// closes each when the last of them is done.
		clear(t.days)
	}
	return t.openDayLocked(day)
}

// readDay returns the folder of a day for reading, nil when there is none or when as many are open as may be.
func (t *Tree) readDay(day string) *dayFolder {
	t.daysMu.Lock()
	defer t.daysMu.Unlock()
	folder := t.days[day]
	if folder == nil && len(t.days) < maxDays {
		folder, _ = t.openDayLocked(day) // whoever asks by path learns why
	}
	return folder
}

func (t *Tree) openDayLocked(day string) (*dayFolder, error) {
	f, err := t.root.Open(path.Join(operationsDir, day)) // never outside, whatever somebody has linked there
	if err != nil {
		return nil, fmt.Errorf("open the folder of the day: %w", err)
	}
	opened := newSyncFolder(f, t.options.Durability)
	raw, err := opened.f.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the folder of the day: %w", err), opened.close())
	}
	folder := &dayFolder{syncFolder: opened, raw: raw}
	t.days[day] = folder
	return folder, nil
}

// syncDay makes the names in the folder of a day durable, and its own name as well. Who made the folder does not matter: it may
// have been another process, which died before it synced operations/.
func (t *Tree) syncDay(day string) error {
	folder, err := t.day(day)
	if err != nil {
		return err
	}
	if err := folder.sync(); err != nil || folder.named.Load() {
		return err
	}
	if err := t.opsSync.sync(); err != nil {
		return err
	}
	folder.named.Store(true)
	return nil
}

// syncOperation makes the names of an operation durable: its record and its marker.
func (t *Tree) syncOperation(id ID) error { return t.syncOperations(map[string]bool{id.Day(): true}) }

// errElsewhere says that a file is to be asked for by its path.
var errElsewhere = errors.New("not by the folder of the day")

// inDay calls with the descriptor of the folder of an operation and the name of one of its files there. The error is errElsewhere when the folder is
// not open.
func (t *Tree) inDay(id ID, suffix string, call func(fd int, name string) error) error {
	folder := t.readDay(id.Day())
	if folder == nil {
		return errElsewhere
	}
	name := id.text + suffix
	return withDescriptor(folder.raw, func(fd int) error { return call(fd, name) })
}

// readRecordFile reads the record of an operation, by the folder of its day when that is open: it is read in most looks, and its path would
// be walked each time. What is no regular file is refused without following it and without blocking, as by readRegular.
func (t *Tree) readRecordFile(id ID) (data []byte, err error) {
	err = t.inDay(id, ".json", func(fd int, name string) error {
		data, err = readAt(fd, name)
		return err
	})
	if err == nil {
		return data, nil
	}
	return t.readRegular(t.root, dayFile(id, ".json"), recordLimit) // whatever is wrong, this one says it
}

// readAt reads a regular file in an open folder, of the size of a record.
func readAt(folder int, name string) ([]byte, error) {
	fd, err := unix.Openat(folder, name, unix.O_RDONLY|unix.O_CLOEXEC|openNonblock, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // opened for reading
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > recordLimit {
		return nil, errElsewhere
	}
	data := make([]byte, st.Size) // it is replaced as a whole, and does not grow
	for n := 0; n < len(data); {
		more, err := unix.Read(fd, data[n:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case more == 0:
			return nil, errElsewhere // somebody cuts it
		default:
			n += more
		}
	}
	return data, nil
}

// sizeOf returns the size of a regular file of an operation, 0 when there is none.
func (t *Tree) sizeOf(id ID, suffix string) int64 {
	var st unix.Stat_t
	err := t.inDay(id, suffix, func(fd int, name string) error { return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if errors.Is(err, errElsewhere) {
		if info, err := t.root.Lstat(dayFile(id, suffix)); err == nil && info.Mode().IsRegular() {
			return info.Size()
		}
		return 0
	}
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0
	}
	return st.Size
}

// isNew returns an error that wraps fs.ErrExist when an operation has a record.
func (t *Tree) isNew(id ID) error {
	var st unix.Stat_t
	err := t.inDay(id, ".json", func(fd int, name string) error { return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if errors.Is(err, errElsewhere) {
		_, err = t.root.Lstat(dayFile(id, ".json"))
	}
	switch {
	case err == nil:
		return fs.ErrExist
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}
