package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
)

// corruptFolder moves wrong files to corrupt/, with the reason beside each. It deletes nothing.
type corruptFolder struct {
	*storage
	reasons *files.Writer // writes in corrupt/, because a file may be in the place of tmp/
	owned   atomic.Bool   // this process holds the lock of the storage
	folders sync.Mutex    // held while a folder takes the place of a file
	changed func()        // called after a folder took the place of a file
}

func newCorruptFolder(s *storage, changed func()) *corruptFolder {
	return &corruptFolder{storage: s, reasons: files.NewWriter(s.dir, corruptDir, false, nil), changed: changed}
}

// move moves a file of the storage. A missing file is not an error.
func (c *corruptFolder) move(name, reason string) error {
	_, err := c.moveBy(c.root.Rename, name, reason)
	return err
}

// moveBy moves or links a file into corrupt/ and returns its name there once it has one.
func (c *corruptFolder) moveBy(rename func(from, to string) error, name, reason string) (target string, err error) {
	err = c.replaceByFolder(corruptDir)
	if err == nil {
		err = files.MakeFolder(filepath.Join(c.dir, corruptDir))
	}
	if err != nil {
		return "", fmt.Errorf("move %s to %s: %w", name, corruptDir, err)
	}
	now := c.options.Now()
	target, err = c.freeName(now, path.Base(name))
	if err != nil {
		return "", err
	}
	if err := rename(name, target); err != nil {
		if files.IsMissing(err) {
			return "", nil
		}
		return "", fmt.Errorf("move %s to %s: %w", name, corruptDir, err)
	}
	note := fmt.Sprintf("%s\n%q: %s\n", now.Format(StampFormat), name, reason)
	return target, c.reasons.Create(target+".reason", []byte(note), false)
}

// freeName returns a free name in corrupt/. A file name that would be too long is cut; the reason
// file holds the whole one.
func (c *corruptFolder) freeName(now time.Time, base string) (string, error) {
	base = base[:min(len(base), 200)]
	for n := 1; ; n++ {
		name := path.Join(corruptDir, fmt.Sprintf("%s_%s", now.Format("2006-01-02T15-04-05.000000"), base))
		if n > 1 {
			name += fmt.Sprintf(".%d", n)
		}
		_, err := c.root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return name, nil
		}
		if err != nil {
			return "", fmt.Errorf("find a name in %s: %w", corruptDir, err)
		}
	}
}

// clearName moves whatever has the name of a regular file and is not one to corrupt/. It never
// follows a link.
func (c *corruptFolder) clearName(name string) error { return c.clearBy(c.move, name) }

// Clear is clearName before a rename to the name. The old file keeps its name until the rename,
// unless it is a folder, which a rename cannot replace: without a record, a marker would have no
// operation. What people put into jobs/ and lanes/ stays.
func (c *corruptFolder) Clear(name string) error {
	if dir := path.Dir(name); dir == jobsDir || dir == lanesDir {
		return nil
	}
	return c.clearBy(c.link, name)
}

// RestoreFolder is makeFolder after a write failed without the folder.
func (c *corruptFolder) RestoreFolder(name string) error {
	if name == jobsDir { // the watch of the folder ends the daemon
		return nil
	}
	return c.makeFolder(name)
}

// link is move by a hard link.
func (c *corruptFolder) link(name, reason string) error {
	if info, err := c.root.Lstat(name); err != nil || info.IsDir() { // a folder cannot have a second name
		return c.move(name, reason)
	}
	target, err := c.moveBy(c.root.Link, name, reason)
	if err != nil && target != "" {
		_ = c.root.Remove(target) // a retry links it again
	}
	return err
}

func (c *corruptFolder) clearBy(move func(name, reason string) error, name string) error {
	info, err := os.Lstat(filepath.Join(c.dir, name))
	if files.IsMissing(err) || err == nil && info.Mode().IsRegular() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stat %s: %w", name, err)
	}
	reason := fmt.Sprintf("it is a %s, and a file has its place here", files.KindOf(info.Mode()))
	err = move(name, reason)
	if err == nil {
		c.report(name, reason)
	}
	return err
}

func (c *corruptFolder) report(name, reason string) {
	if c.options.Cleared != nil {
		c.options.Cleared(name, reason)
	}
}

// makeFolder creates a folder of the storage and its parents if they are missing. A file in the
// place of one of them is moved to corrupt/. The error is a *LockedError if a daemon holds the
// storage: its next sweep moves the file.
func (c *corruptFolder) makeFolder(name string) error {
	for i := range name + "/" {
		if i < len(name) && name[i] != '/' {
			continue
		}
		if err := c.clearFolder(name[:i]); err != nil {
			return err
		}
	}
	return files.MakeFolder(filepath.Join(c.dir, name))
}

// clearFolders moves files in the place of events/ and of day folders to corrupt/.
func (c *corruptFolder) clearFolders() error {
	errs := []error{c.clearFolder(eventsDir)}
	for _, parent := range []string{operationsDir, keysDir} {
		entries, err := c.readFolder(parent)
		errs = append(errs, err)
		for _, entry := range entries {
			if !entry.IsDir() && dayPattern.MatchString(entry.Name()) {
				errs = append(errs, c.clearFolder(path.Join(parent, entry.Name())))
			}
		}
	}
	return errors.Join(errs...)
}

// clearFolder makes a folder in the place of a file, under the lock of the storage: otherwise the
// folder that another process has just made could be moved.
func (c *corruptFolder) clearFolder(name string) error {
	if info, err := os.Lstat(filepath.Join(c.dir, name)); err != nil || !isWrongFolder(info) {
		return nil // the next use of the folder has the error
	}
	if c.owned.Load() {
		c.folders.Lock()
		defer c.folders.Unlock()
		return c.replaceByFolder(name)
	}
	l := c.newLock()
	held, err := l.lockNamed()
	if errors.Is(err, unix.EWOULDBLOCK) {
		pid, _ := readLock(l.path)
		return &LockedError{Dir: c.dir, PID: pid}
	}
	if err != nil {
		return err
	}
	err = c.replaceByFolder(name)
	return errors.Join(err, files.Flock(held, unix.LOCK_UN), held.Close())
}

// isWrongFolder reports whether a file in the place of a folder is moved to corrupt/. A link may
// lead to another disk, so it stays.
func isWrongFolder(info fs.FileInfo) bool { return !info.IsDir() && info.Mode()&fs.ModeSymlink == 0 }

func (c *corruptFolder) replaceByFolder(name string) error {
	at := filepath.Join(c.dir, name)
	info, err := os.Lstat(at)
	if files.IsMissing(err) || err == nil && !isWrongFolder(info) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stat %s: %w", name, err)
	}
	reason := fmt.Sprintf("it is a %s, and a folder has its place here", files.KindOf(info.Mode()))
	rename := c.root.Rename
	if name == corruptDir { // it cannot be moved into itself
		other := fmt.Sprintf("%s-%d", corruptDir, c.options.Now().UnixNano())
		if err := c.root.Rename(name, other); err != nil {
			return err
		}
		rename = func(_, to string) error { return c.root.Rename(other, to) }
	}
	if _, err := c.moveBy(rename, name, reason); err != nil {
		return err
	}
	if err := files.MakeFolder(at); err != nil {
		return err
	}
	c.changed()
	c.report(name, reason)
	return c.syncFolder(path.Dir(name))
}
