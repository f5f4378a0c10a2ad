package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/jobdir/jobdir/statefs/files"
)

// exitSuffix ends the name of every exit report.
const exitSuffix = ".exit"

// exitLimit bounds an exit report in bytes; a larger file is not one.
const exitLimit = 64 << 10

// ExitName returns the name, relative to the storage directory, of the exit report of an operation's current run;
// step is its optional step, "" for none.
func ExitName(id ID, step string) string { return workFile(id, step, exitSuffix) }

// ItemExitName returns the name, relative to the storage directory, of the exit report of one item of the current run.
func ItemExitName(id ID, step string, item int) string {
	return path.Join(workFile(id, step, ".run"), fmt.Sprintf("item-%d%s", item, exitSuffix))
}

// Exits writes exit reports. The keeper uses it without being the Owner: a report is a new file,
// and the daemon decides what it means. It is safe for concurrent use.
type Exits struct {
	dir   string // absolute path of the storage directory
	files *files.Writer
}

// NewExits returns an Exits for the storage directory dir.
func NewExits(dir string) (*Exits, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("storage %s: %w", dir, err)
	}
	return &Exits{abs, files.NewWriter(abs, tmpDir, false, nil)}, nil
}

// Write writes a report under its name, which must be the name of an exit report. With durable it
// survives a power cut.
func (e *Exits) Write(name string, report []byte, durable bool) error {
	if err := CheckExitName(name); err != nil {
		return err
	}
	if err := e.files.Replace(name, report, durable); err != nil || !durable {
		return err
	}
	if err := files.SyncFolder(filepath.Join(e.dir, filepath.Dir(name))); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// Removed reports whether the folder of a report is gone: the operation or the run was removed, and
// its reports are obsolete.
func (e *Exits) Removed(name string) bool {
	_, err := os.Lstat(filepath.Join(e.dir, filepath.Dir(name)))
	return files.IsMissing(err)
}

// RemoveExit removes an exit report of the storage directory dir. A missing report is not an error.
func RemoveExit(dir, name string) error {
	return withExit(dir, name, func(s *storage) error {
		if err := s.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", name, err)
		}
		return nil
	})
}

// withExit calls with the storage directory dir that holds an exit report.
func withExit(dir, name string, call func(*storage) error) error {
	if err := CheckExitName(name); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written through it
	return call(&storage{dir: dir, root: root})
}

// CheckExitName returns an error unless name is the name of an exit report, so that a caller that
// supplies the name can write no other file.
func CheckExitName(name string) error {
	if !filepath.IsLocal(name) || path.Clean(name) != name || !strings.HasPrefix(name, operationsDir+"/") ||
		!strings.HasSuffix(name, exitSuffix) {
		return fmt.Errorf("%q is not the name of an exit report", name)
	}
	return nil
}

// ReadExit reads an exit report of the storage directory dir. The error wraps fs.ErrNotExist if
// there is none.
func ReadExit(dir, name string) (data []byte, err error) {
	err = withExit(dir, name, func(s *storage) error {
		data, err = s.readRegular(name, exitLimit)
		return err
	})
	return data, err
}
