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

// Requests must work on a full disk, because a request may be what frees space.

// DiskFull reports whether err means that the disk, or the quota of the user, is full.
func DiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// requestOnFullDisk creates a request in jobs/ without a data block: an empty file, which counts by
// its modification time, needs an inode only; if none is left, a link to an existing file needs not
// even that. The content of the linked file is not a time, so its modification time counts as well.
func (t *Tree) requestOnFullDisk(name string) error {
	err := t.files.replaceUnsynced(path.Join(jobsDir, name), nil)
	if DiskFull(err) && t.files.link(storageFile, path.Join(jobsDir, name), t.options.Now()) == nil {
		return nil
	}
	return err
}

// link gives an existing file a second name, replacing any file there, and sets its modification
// time.
func (w *files) link(from, name string, modified time.Time) error {
	source, target := filepath.Join(w.dir, from), filepath.Join(w.dir, name)
	err := w.persist(name, func() error {
		temp := filepath.Join(w.tmp, "link-"+path.Base(name))
		if err := os.Link(source, temp); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		err := errors.Join(os.Chtimes(temp, modified, modified), os.Rename(temp, target))
		_ = os.Remove(temp) // rename(2) does nothing if both names are the same file
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
