package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

// copier copies the files of one storage once.
type copier struct {
	ctx      context.Context //nolint:containedctx // ends the one call that the copier is made for
	tree     *statefs.Tree
	from, to *os.Root
	sum      *Summary
}

// copyTree copies a file or a folder. What has gone since it was listed is left out, and so are sockets, fifos and
// devices.
func (c *copier) copyTree(name string) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	info, err := c.from.Lstat(name)
	if files.IsMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case info.Mode().IsRegular():
		return c.copyFile(name)
	case info.Mode()&fs.ModeSymlink != 0:
		return c.copyLink(name)
	case !info.IsDir():
		return nil
	}
	if err := c.copyFolder(name, info); err != nil {
		return err
	}
	entries, err := files.ReadFolderIn(c.from, name)
	if err != nil {
		return ignoreMissing(err)
	}
	for _, entry := range entries {
		if err := c.copyTree(path.Join(name, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func ignoreMissing(err error) error {
	if files.IsMissing(err) {
		return nil
	}
	return err
}

// copyFolder makes a folder without its content.
func (c *copier) copyFolder(name string, info fs.FileInfo) error {
	if err := c.to.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return c.copyMode(name, info)
}

// copyLink copies a symbolic link, which work may have left among its artifacts.
func (c *copier) copyLink(name string) error {
	target, err := c.from.Readlink(name)
	if err != nil {
		return ignoreMissing(err)
	}
	if err := c.to.Symlink(target, name); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// copyMode copies the mode of a file, and its owner if this process may.
func (c *copier) copyMode(name string, info fs.FileInfo) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		if err := c.to.Lchown(name, int(stat.Uid), int(stat.Gid)); err != nil {
			return err
		}
	}
	return c.to.Chmod(name, info.Mode()&(fs.ModePerm|fs.ModeSetgid))
}

// copyFile copies a regular file, unless the copy has it already. A missing one is no error.
func (c *copier) copyFile(name string) error { return c.copyRegular(name, false) }

// copyRegular is copyFile; with always, the size and the time of a file do not show that the copy has it.
func (c *copier) copyRegular(name string, always bool) (err error) {
	f, info, err := files.OpenRegularIn(c.from, name)
	if errors.Is(err, files.ErrIrregular) {
		return nil
	}
	if err != nil {
		return ignoreMissing(err)
	}
	defer func() { _ = f.Close() }() // opened for reading
	there, err := c.to.Lstat(name)
	if err == nil && !always && there.Size() == info.Size() && there.ModTime().Equal(info.ModTime()) {
		return nil
	}
	isNew := err != nil
	copied, err := c.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	size, err := io.Copy(copied, f)
	if err = errors.Join(err, copied.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", name, err)
	}
	if isNew {
		c.sum.Files++
	} else {
		c.sum.Bytes -= there.Size()
	}
	c.sum.Bytes += size
	if err := c.copyMode(name, info); err != nil {
		return err
	}
	return c.to.Chtimes(name, info.ModTime(), info.ModTime())
}

// copyOperations copies operations/: of each day first the records, and then the other files, so that no log ends
// before its record says.
func (c *copier) copyOperations() error {
	info, err := c.from.Lstat("operations")
	if err != nil {
		return err
	}
	if err := c.copyFolder("operations", info); err != nil {
		return err
	}
	days, err := files.ReadFolderIn(c.from, "operations")
	if err != nil {
		return err
	}
	for _, day := range days {
		if err := c.copyDay(path.Join("operations", day.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) copyDay(folder string) error {
	info, err := c.from.Lstat(folder)
	if err != nil || !info.IsDir() {
		return ignoreMissing(err)
	}
	entries, err := files.ReadFolderIn(c.from, folder)
	if err != nil {
		return ignoreMissing(err)
	}
	if err := c.copyFolder(folder, info); err != nil {
		return err
	}
	var others []string
	for _, entry := range entries {
		name := path.Join(folder, entry.Name())
		base, isRecord := strings.CutSuffix(entry.Name(), ".json")
		id, err := statefs.ParseID(base)
		if !isRecord || err != nil {
			others = append(others, name)
			continue
		}
		if err := c.copyRecord(id, name); err != nil {
			return err
		}
	}
	// The folder is listed again: the log of an operation that has ended since it was listed belongs to its record.
	if entries, err = files.ReadFolderIn(c.from, folder); err != nil {
		return ignoreMissing(err)
	}
	for _, entry := range entries {
		if path.Ext(entry.Name()) != ".json" {
			others = append(others, path.Join(folder, entry.Name()))
		}
	}
	slices.Sort(others)
	for _, name := range slices.Compact(others) {
		if err := c.copyTree(name); err != nil {
			return err
		}
	}
	return nil
}

// liveStates are the names that a marker can have.
var liveStates = func() (names statefs.NameSet) {
	for _, state := range statefs.LiveStates() {
		names |= statefs.MarkerBit(state)
	}
	return names
}()

// copyRecord copies the record of an operation and its marker, as they were at one moment.
func (c *copier) copyRecord(id statefs.ID, name string) error {
	for {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		before, err := c.tree.Observe(id, liveStates)
		if err != nil {
			return err
		}
		if err := c.copyRegular(name, true); err != nil { // a record is replaced in less than a tick of that clock
			return err
		}
		after, err := c.tree.Observe(id, liveStates)
		if err != nil {
			return err
		}
		if !slices.Equal(before.States, after.States) {
			continue
		}
		whole, err := c.setMarkers(id, after.States)
		if err != nil || whole {
			return err
		}
	}
}

// setMarkers gives an operation of the copy the markers in some states, and returns false if one has changed again.
func (c *copier) setMarkers(id statefs.ID, states []statefs.State) (whole bool, err error) {
	for _, state := range statefs.LiveStates() {
		name := path.Join("jobs", statefs.MarkerName(id, state))
		if !slices.Contains(states, state) {
			if err := c.to.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return false, err
			}
			continue
		}
		if err := c.copyFile(name); err != nil {
			return false, err
		}
		if _, err := c.to.Lstat(name); err != nil {
			return false, ignoreMissing(err)
		}
	}
	return true, nil
}

// copyOthers copies the files of an operation besides its record again, if they have changed.
func (c *copier) copyOthers(id statefs.ID) error {
	folder := path.Join("operations", id.Day())
	if info, err := c.from.Lstat(folder); err == nil {
		if err := c.copyFolder(folder, info); err != nil {
			return err
		}
	}
	for _, suffix := range []string{".log", ".progress", ".items.ndjson", ".artifacts", ".exit", ".steps"} {
		if err := c.copyTree(path.Join(folder, id.String()+suffix)); err != nil {
			return err
		}
	}
	return nil
}

// syncAll makes all files of a folder durable.
func syncAll(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	done, err := files.SyncFileSystem(f)
	if err = errors.Join(err, f.Close()); err != nil || done {
		return err
	}
	return filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() && !entry.Type().IsRegular() {
			return err
		}
		if entry.IsDir() {
			return files.SyncFolder(name)
		}
		f, err := files.OpenRegular(name)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}
