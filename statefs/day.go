package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
)

// maxOpenDays bounds the day folders kept open. An operation may be written days after its submit,
// but few days are busy at once.
const maxOpenDays = 16

// dayFolder is one folder of operations/.
type dayFolder struct {
	*files.Folder
	raw   syscall.RawConn // for calls that take a descriptor; keeps it open during the call
	named atomic.Bool     // its own name in operations/ is known to be on disk
}

// day returns the folder of a day and creates it if it is missing.
func (t *Tree) day(day string) (*dayFolder, error) {
	t.daysMu.Lock()
	folder := t.days[day]
	t.daysMu.Unlock()
	if folder != nil {
		return folder, nil
	}
	if err := t.corrupt.makeFolder(path.Join(operationsDir, day)); err != nil {
		return nil, fmt.Errorf("make the folder of the day: %w", err)
	}
	t.daysMu.Lock()
	defer t.daysMu.Unlock()
	if folder := t.days[day]; folder != nil {
		return folder, nil
	}
	if len(t.days) >= maxOpenDays {
		// Other goroutines may be about to sync one of these folders, and closing it would fail
		// them. They hold a reference; the garbage collector closes each folder after its last
		// user.
		clear(t.days)
	}
	return t.openDayLocked(day)
}

// readDay returns the folder of a day for reading, nil if it does not exist or maxOpenDays folders
// are open.
func (t *Tree) readDay(day string) *dayFolder {
	t.daysMu.Lock()
	defer t.daysMu.Unlock()
	folder := t.days[day]
	if folder == nil && len(t.days) < maxOpenDays {
		folder, _ = t.openDayLocked(day) // the caller falls back to the path and gets the error there
	}
	return folder
}

func (t *Tree) openDayLocked(day string) (*dayFolder, error) {
	f, err := t.openFolder(path.Join(operationsDir, day)) // a Root: a symbolic link cannot lead outside
	if err != nil {
		return nil, fmt.Errorf("open the folder of the day: %w", err)
	}
	opened := files.NewFolder(f, t.durable())
	raw, err := opened.Raw()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the folder of the day: %w", err), opened.Close())
	}
	folder := &dayFolder{Folder: opened, raw: raw}
	t.days[day] = folder
	return folder, nil
}

// syncDay makes the names in the folder of a day durable, and the folder's own name. It syncs
// operations/ even if another process made the folder: that process may have died before its sync.
func (t *Tree) syncDay(day string) error {
	folder, err := t.day(day)
	if err != nil {
		return err
	}
	if err := folder.Sync(); err != nil || folder.named.Load() {
		return err
	}
	if err := t.opsSync.Sync(); err != nil {
		return err
	}
	folder.named.Store(true)
	return nil
}

// syncOperation makes the names of an operation durable: its record and its marker.
func (t *Tree) syncOperation(id ID) error { return t.syncOperations(map[string]bool{id.Day(): true}) }

// errDayNotOpen means that the file has to be opened by its path.
var errDayNotOpen = errors.New("not by the folder of the day")

// withDayFile calls with the descriptor of the operation's day folder and the name of one of its
// files. The error is errDayNotOpen if the folder is not open.
func (t *Tree) withDayFile(id ID, suffix string, call func(fd int, name string) error) error {
	folder := t.readDay(id.Day())
	if folder == nil {
		return errDayNotOpen
	}
	name := id.text + suffix
	return files.WithDescriptor(folder.raw, func(fd int) error { return call(fd, name) })
}

// readRecordFile reads the record of an operation. It uses the open folder of the day if there is
// one: most reconciles read the record, and this avoids walking the path each time. A name that is
// not a regular file is a *CorruptError; it is not followed, and the read does not block.
func (t *Tree) readRecordFile(id ID) (data []byte, err error) {
	err = t.withDayFile(id, ".json", func(fd int, name string) error {
		data, err = readAt(fd, name)
		return err
	})
	if err == nil {
		return data, nil
	}
	data, err = t.readRegular(dayFile(id, ".json"), recordLimit) // this call reports whatever is wrong
	if errors.Is(err, files.ErrIrregular) {
		return nil, &CorruptError{dayFile(id, ".json"), files.ErrIrregular.Error()}
	}
	return data, err
}

// readAt reads a regular file of at most recordLimit bytes in an open folder.
func readAt(folder int, name string) ([]byte, error) {
	fd, err := unix.Openat(folder, name, unix.O_RDONLY|unix.O_CLOEXEC|files.Nonblock, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // opened for reading
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > recordLimit {
		return nil, errDayNotOpen
	}
	data := make([]byte, st.Size) // a record is replaced as a whole and does not grow
	for n := 0; n < len(data); {
		more, err := unix.Read(fd, data[n:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case more == 0:
			return nil, errDayNotOpen // another program is truncating it
		default:
			n += more
		}
	}
	return data, nil
}

// sizeOf returns the size of a regular file of an operation, 0 if there is none.
func (t *Tree) sizeOf(id ID, suffix string) int64 {
	var st unix.Stat_t
	err := t.withDayFile(id, suffix, func(fd int, name string) error {
		return unix.Fstatat(fd, name, &st,
			unix.AT_SYMLINK_NOFOLLOW)
	})
	if errors.Is(err, errDayNotOpen) {
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

// HasRecord reports whether the record of an operation exists as a regular file.
func (t *Tree) HasRecord(id ID) bool {
	info, err := t.root.Lstat(dayFile(id, ".json"))
	return err == nil && info.Mode().IsRegular()
}

// checkNoRecord returns an error that wraps fs.ErrExist if an operation has a record.
func (t *Tree) checkNoRecord(id ID) error {
	var st unix.Stat_t
	err := t.withDayFile(id, ".json", func(fd int, name string) error {
		return unix.Fstatat(fd, name, &st,
			unix.AT_SYMLINK_NOFOLLOW)
	})
	if errors.Is(err, errDayNotOpen) {
		_, err = t.root.Lstat(dayFile(id, ".json"))
	}
	switch {
	case err == nil:
		return fs.ErrExist
	case files.IsMissing(err):
		return nil
	}
	return err
}
