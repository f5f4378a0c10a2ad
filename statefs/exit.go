package statefs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// exitSuffix ends the name of every exit report.
const exitSuffix = ".exit"

// exitLimit bounds an exit report in bytes; a larger file is not one.
const exitLimit = 64 << 10

// ExitName returns the name, relative to the storage directory, of the exit report of an operation's current run.
func ExitName(id ID) string { return dayFile(id, exitSuffix) }

// ItemExitName returns the name, relative to the storage directory, of the exit report of one item of the current run.
func ItemExitName(id ID, item int) string {
	return path.Join(dayFile(id, ".run"), fmt.Sprintf("item-%d%s", item, exitSuffix))
}

// Exits writes exit reports. The keeper uses it without being the Owner: a report is a new file,
// and the daemon decides what it means. It is safe for concurrent use.
type Exits struct{ files *files }

// NewExits returns an Exits for the storage directory dir.
func NewExits(dir string) (*Exits, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("storage %s: %w", dir, err)
	}
	return &Exits{&files{dir: abs, tmp: filepath.Join(abs, tmpDir), slots: make(chan struct{}, maxSyncs)}}, nil
}

// Write writes a report under its name, which must be the name of an exit report. With durable it
// survives a power cut.
func (e *Exits) Write(name string, report []byte, durable bool) error {
	if err := CheckExitName(name); err != nil {
		return err
	}
	if err := e.files.replace(name, report, durable); err != nil || !durable {
		return err
	}
	folder, err := os.OpenFile(filepath.Join(e.files.dir, filepath.Dir(name)), os.O_RDONLY|unix.O_DIRECTORY, 0) // does not block on a fifo
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() { _ = folder.Close() }() // nothing was written through it
	if err := folder.Sync(); err != nil {
		return &SyncError{folder.Name(), err}
	}
	return nil
}

// Removed reports whether the folder of a report is gone: the operation or the run was removed, and
// its reports are obsolete.
func (e *Exits) Removed(name string) bool {
	_, err := os.Lstat(filepath.Join(e.files.dir, filepath.Dir(name)))
	return isMissing(err)
}

// Remove removes a report. A missing report is not an error.
func (e *Exits) Remove(name string) error { return RemoveExit(e.files.dir, name) }

// RemoveExit removes an exit report of the storage directory dir. A missing report is not an error.
func RemoveExit(dir, name string) error {
	if err := CheckExitName(name); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	defer func() { _ = root.Close() }() // nothing was written through it
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
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
func ReadExit(dir, name string) ([]byte, error) {
	if err := CheckExitName(name); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer func() { _ = root.Close() }() // opened for reading
	f, info, err := openRegular(root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading
	if info.Size() > exitLimit {
		return nil, fmt.Errorf("read %s: %w", name, errors.New("it is too large for an exit report"))
	}
	data, err := io.ReadAll(io.LimitReader(f, exitLimit))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}
