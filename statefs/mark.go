package statefs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// MarkName is the environment variable that identifies every process started by a daemon, with all
// descendants. Only the daemon sets it.
const MarkName = "JOBDIR_MARK"

// readMark returns the mark of the storage, "" if no daemon has created one yet. It consists of a
// random text from storage.json, so that it is the same by every path, and the place of the folder,
// so that a copy of the storage has another mark.
func (t *Tree) readMark() (string, error) {
	info, _, err := t.readStorage()
	if err != nil && !errors.Is(err, ErrBadCounter) || info.Mark == "" {
		return "", err
	}
	folder, err := t.root.Stat(".")
	if err != nil {
		return "", fmt.Errorf("mark of %s: %w", t.dir, err)
	}
	return info.Mark + placeOf(folder), nil
}

// placeOf identifies a folder among all folders of the machine. The inode number alone is not
// enough: the root folder has the same number in every file system, and snapshots and disk images
// keep all numbers. The device number may change after an unmount, but then no process with an open
// file there is left.
func placeOf(folder fs.FileInfo) string {
	stat, ok := folder.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf(".%x.%x", stat.Dev, stat.Ino)
}

// makeMark creates the mark of the storage if it has none.
func (t *Tree) makeMark() error {
	if info, _, err := t.readStorage(); err != nil || info.Mark != "" {
		return err
	}
	return t.changeStorage(func(info *storageInfo) error {
		info.Mark = rand.Text()
		return nil
	})
}

// RestoreMark writes the mark into storage.json again if that file was removed or replaced, and
// reports whether it did. The next daemon needs the mark to recognise the processes that this one
// started.
func (o *Owner) RestoreMark() (made bool, err error) {
	text, _, _ := strings.Cut(o.mark, ".")
	if info, whole, err := o.readStorage(); err != nil || whole && info.Mark == text {
		return false, err
	}
	err = o.changeStorage(func(info *storageInfo) error {
		info.Mark = text
		return nil
	})
	return err == nil, err
}

// Mark returns the environment entry, "JOBDIR_MARK=...", of all processes of this storage. It does
// not change if the storage is reached by another path or moved within its file system; a copy has
// another one.
func (o *Owner) Mark() string { return MarkName + "=" + o.mark }

// MarkOf is Mark for the storage directory dir, which may be in use; "" if no daemon has ever used
// it.
func MarkOf(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("mark of %s: %w", dir, err)
	}
	t := &Tree{storage: &storage{dir: dir, root: root}}
	mark, err := t.readMark()
	if err = errors.Join(err, root.Close()); err != nil || mark == "" {
		return "", err
	}
	return MarkName + "=" + mark, nil
}
