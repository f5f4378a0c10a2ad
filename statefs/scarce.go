package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"time"
)

// Control has to work on a disk that is full: a request may be what makes room.

// Scarce says that the disk has no room, or lets this user have none.
func Scarce(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// askInNoRoom puts a request into jobs/ that needs no room: an empty file, which counts by its modification time, takes an inode alone, and
// where there is none left a link to a file that is there takes not even that. Its content is no time, so that it counts in the same way.
func (t *Tree) askInNoRoom(name string) error {
	err := t.files.replaceUnsynced(path.Join(jobsDir, name), nil)
	if Scarce(err) && t.files.link(storageFile, path.Join(jobsDir, name), t.options.Now()) == nil {
		return nil
	}
	return err
}

// link puts a file that is there under a second name, replacing what was there, and gives it a modification time.
func (w *files) link(from, name string, modified time.Time) error {
	source, target := filepath.Join(w.dir, from), filepath.Join(w.dir, name)
	err := w.persist(func() error {
		temp := filepath.Join(w.tmp, "link-"+path.Base(name))
		if err := os.Link(source, temp); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		err := errors.Join(os.Chtimes(temp, modified, modified), os.Rename(temp, target))
		_ = os.Remove(temp) // it is still there where both are the same file: such a rename does nothing
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
