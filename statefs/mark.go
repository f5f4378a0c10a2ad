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

// MarkName is the environment variable by which every process that a daemon starts is known, with all of its descendants. Nobody
// but the daemon sets it.
const MarkName = "JOBDIR_MARK"

// readMark returns the mark of the storage, "" when no daemon has made one yet: a random text that storage.json keeps, so that the
// storage is the same by every path, and the place of its folder, so that a copy is another one.
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

// placeOf tells a folder from all others of the machine. The number alone would not: the first folder of a file system has the same
// one in each, and all folders of a snapshot or of an image of a disk keep theirs. The number of the device may be another one after
// the file system was unmounted, and then no process is left that had a file there.
func placeOf(folder fs.FileInfo) string {
	stat, ok := folder.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf(".%x.%x", stat.Dev, stat.Ino)
}

// makeMark makes the mark of the storage if it has none.
func (t *Tree) makeMark() error {
	if info, _, err := t.readStorage(); err != nil || info.Mark != "" {
		return err
	}
	return t.changeStorage(func(info *storageInfo) error {
		info.Mark = rand.Text()
		return nil
	})
}

// KeepMark writes the mark into storage.json again when somebody removed or replaced that file, and reports whether it did: the next
// daemon knows by it what this one has started.
func (o *Owner) KeepMark() (made bool, err error) {
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

// Mark returns the entry of the environment, "JOBDIR_MARK=...", that all processes of this storage carry. It stays the same when the
// storage is reached by another path or moved within its file system, and is another one for a copy.
func (o *Owner) Mark() string { return MarkName + "=" + o.mark }

// MarkOf is Mark for the storage directory dir, which may be in use; "" when no daemon was ever there.
func MarkOf(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("mark of %s: %w", dir, err)
	}
	t := &Tree{dir: dir, root: root}
	mark, err := t.readMark()
	if err = errors.Join(err, root.Close()); err != nil || mark == "" {
		return "", err
	}
	return MarkName + "=" + mark, nil
}
