package statefs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// MarkName is the environment variable by which every process that a daemon starts is known, with all of its descendants. Nobody
// but the daemon sets it.
const MarkName = "JOBDIR_MARK"

// readMark returns the mark of the storage, "" when no daemon has made one yet: a random text that storage.json keeps, so that the
// storage is the same by every path, and the number of its folder, so that a copy is another one.
func (t *Tree) readMark() (string, error) {
	info, err := t.storageInfo()
	if err != nil || info.Mark == "" {
		return "", err
	}
	folder, err := t.root.Stat(".")
	if err != nil {
		return "", fmt.Errorf("mark of %s: %w", t.dir, err)
	}
	stat, ok := folder.Sys().(*syscall.Stat_t)
	if !ok {
		return info.Mark, nil
	}
	return fmt.Sprintf("%s.%x", info.Mark, stat.Ino), nil
}

// makeMark makes the mark of the storage if it has none.
func (t *Tree) makeMark() error {
	if mark, err := t.readMark(); err != nil || mark != "" {
		return err
	}
	return t.changeStorage(func(info *storageInfo) error {
		info.Mark = rand.Text()
		return nil
	})
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
