package statefs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
)

// The folders of a storage directory.
const (
	jobsDir        = "jobs"
	newDir         = "new"
	operationsDir  = "operations"
	definitionsDir = "definitions"
	takenDir       = "taken"
	corruptDir     = "corrupt"
	tmpDir         = "tmp"
	eventsDir      = "events"
	keysDir        = "keys"
	lanesDir       = "lanes"
	schedulesDir   = "schedules"
	outboxDir      = "outbox"
)

const socketFile = "jobdir.sock"

// groupMode lets the group of the storage create and rename files in a folder, which is the
// right to control and start operations. The set-group-ID bit gives new files that group.
const groupMode = 0o770 | os.ModeSetgid

var dayPattern = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)

// Durability is what an acknowledgement promises.
type Durability string

const (
	// Power survives a power cut: files and directories are synced before an answer is given. It is the default.
	Power Durability = "power"
	// Process survives the death of the daemon only: a power cut may empty or lose files.
	Process Durability = "process"
)

// Options configures the use of a storage directory. The zero value is right for most.
type Options struct {
	// Durability is Power when empty.
	Durability Durability
	// GroupControl lets members of the directory's group create files in jobs/, new/ and lanes/.
	GroupControl bool
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Cleared is called after a file of the wrong kind was moved to corrupt/, with its name
	// relative to the storage and its kind. It may be called by several goroutines; nil for none.
	Cleared func(name, reason string)
	// Commit says how the owner makes changes durable.
	Commit CommitOptions
}

// storage is the access to the directory that the parts of a Tree share.
type storage struct {
	dir     string // absolute path
	options Options
	root    *os.Root
	files   *files.Writer
	corrupt *corruptFolder
	commits *commits
}

func (s *storage) durable() bool { return s.options.Durability == Power }

// syncFolder syncs a folder that is rarely synced.
func (s *storage) syncFolder(name string) error {
	if !s.durable() {
		return nil
	}
	return files.SyncFolder(filepath.Join(s.dir, name))
}

func (s *storage) readFolder(name string) ([]fs.DirEntry, error) {
	return files.ReadFolderIn(s.root, name)
}

func (s *storage) openFolder(name string) (*os.File, error) { return files.OpenFolderIn(s.root, name) }

func (s *storage) openRegular(name string) (*os.File, fs.FileInfo, error) {
	return files.OpenRegularIn(s.root, name)
}

// readRegular reads a whole regular file of the storage. It refuses a symbolic link, a directory, a
// fifo or a device without following it and without blocking.
func (s *storage) readRegular(name string, limit int64) ([]byte, error) {
	f, info, err := s.openRegular(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading: nothing can be lost
	var into bytes.Buffer
	into.Grow(int(min(info.Size(), limit)) + bytes.MinRead) // one allocation, unless the file grows
	if _, err := into.ReadFrom(io.LimitReader(f, limit+1)); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	data := into.Bytes()
	if int64(len(data)) > limit {
		return nil, &CorruptError{name, fmt.Sprintf("it is larger than %d bytes", limit)}
	}
	return data, nil
}

// Dir returns the absolute path of the storage directory.
func (s *storage) Dir() string { return s.dir }

// JobsDir returns the absolute path of jobs/, the only folder that is watched for control.
func (s *storage) JobsDir() string { return filepath.Join(s.dir, jobsDir) }

// SocketPath returns the path of the unix socket of the daemon.
func (s *storage) SocketPath() string { return filepath.Join(s.dir, socketFile) }

// Now returns the time by the clock of the tree.
func (s *storage) Now() time.Time { return s.options.Now() }

// Durability returns the durability that an acknowledgement of this tree promises.
func (s *storage) Durability() Durability { return s.options.Durability }

func dayFile(id ID, suffix string) string { return path.Join(operationsDir, id.Day(), id.text+suffix) }

// LogPath returns the path of an operation's log, which may not exist yet.
func (s *storage) LogPath(id ID) string { return filepath.Join(s.dir, dayFile(id, ".log")) }

// RecordPath returns the path of an operation's record. The file is replaced each time it changes.
func (s *storage) RecordPath(id ID) string { return filepath.Join(s.dir, dayFile(id, ".json")) }

// ProgressPath returns the path of an operation's progress, which may not exist yet.
func (s *storage) ProgressPath(id ID) string { return filepath.Join(s.dir, dayFile(id, ".progress")) }

// ArtifactsPath returns the path of the folder for the artifacts of the work.
func (s *storage) ArtifactsPath(id ID) string { return filepath.Join(s.dir, dayFile(id, ".artifacts")) }

// ItemsPath returns the path of the item results.
func (s *storage) ItemsPath(id ID) string { return filepath.Join(s.dir, dayFile(id, itemsSuffix)) }

// itemsSuffix ends the name of every file of item results.
const itemsSuffix = ".items.ndjson"

// adviceFor suggests what a person can do about err, an error of using the storage. It continues a
// sentence.
func adviceFor(err error) string {
	switch {
	case errors.Is(err, syscall.EROFS):
		return "mount the file system for writing, or choose another directory with --storage"
	case files.DiskFull(err):
		return "make room on that disk, or choose another directory with --storage"
	case errors.Is(err, fs.ErrPermission):
		return "start the daemon as the user to whom it belongs, choose another directory with --storage or give the daemon's user the right to write there"
	}
	return "choose another directory with --storage or give the daemon's user the right to write there"
}

// BlockedError reports that a request cannot be created, because its name is not a regular file.
type BlockedError struct{ File string }

func (e *BlockedError) Error() string {
	return fmt.Sprintf("%s is no regular file: remove it, or ask again when the daemon has moved it to %s/", e.File,
		corruptDir)
}

func sameContent(one, other fs.FileInfo) bool {
	return os.SameFile(one, other) && one.ModTime().Equal(other.ModTime()) && one.Size() == other.Size()
}

// removeUnchanged removes a file unless it was removed or written since it was seen.
func removeUnchanged(root *os.Root, name string, seen fs.FileInfo) error {
	now, err := root.Lstat(name)
	if err == nil && sameContent(seen, now) {
		err = root.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// parallelWriters bounds parallel unsynced writes: they contend for the same folders, and more of
// them would only wait.
const parallelWriters = 4

// ParallelLooks is how many looks for names in jobs/ are made at once. A look may have to wait until a change of the
// folder is on disk; one after the other, each would wait anew.
const ParallelLooks = 16

// ForEachParallel calls do for every element, at most most calls at once. It returns the first
// error and starts no more calls after it.
func ForEachParallel[T any](list []T, most int, do func(T) error) error {
	if len(list) == 1 {
		return do(list[0])
	}
	var first atomic.Pointer[error]
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(most, len(list)) {
		workers.Go(func() {
			for first.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(list) {
					return
				}
				if err := do(list[i]); err != nil {
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	workers.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	return nil
}
