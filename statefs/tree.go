package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
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

const (
	// groupMode lets the group of the storage create and rename files in a folder, which is the
	// right to control and start operations. The set-group-ID bit gives new files that group.
	groupMode = 0o770 | os.ModeSetgid
)

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
}

// storage is the access to the directory that the parts of a Tree share.
type storage struct {
	dir     string // absolute path
	options Options
	root    *os.Root
	files   *files.Writer
	corrupt *corruptFolder
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

// Tree is a storage directory as any process may use it: to read, submit and request. It is safe
// for concurrent use, also by several processes. Only an Owner moves markers.
type Tree struct {
	*storage
	*jobsFolder
	*operations
	// Descriptors refuses work for which too few files can be opened.
	Descriptors *machine.Descriptors

	Lanes     *Lanes
	Schedules *Schedules
	Keys      *Keys
	Outbox    *Outbox

	numbers           *Numbers
	drafting          sync.Mutex // held while an operation with a key gets its number and is announced
	live              *LiveList
	handover          handover
	storedDefinitions sync.Map // hashes of definitions known to be on disk
}

// Open opens a storage directory and creates its missing parts. The caller closes the tree.
func Open(dir string, options Options) (*Tree, error) {
	if options.Durability == "" {
		options.Durability = Power
	}
	if options.Durability != Power && options.Durability != Process {
		return nil, fmt.Errorf("durability %q is not known: use %q or %q", options.Durability, Power, Process)
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("storage %s: %w", dir, err)
	}
	s := &storage{dir: abs, options: options}
	live := &LiveList{cachedList{storage: s, name: liveFile}}
	t := &Tree{
		storage: s, Lanes: &Lanes{s}, Schedules: &Schedules{s}, Keys: &Keys{storage: s}, Outbox: &Outbox{s},
		live: live, numbers: &Numbers{storage: s, live: live}, jobsFolder: &jobsFolder{storage: s},
		operations: &operations{storage: s, days: make(map[string]*dayFolder)},
	}
	t.corrupt = newCorruptFolder(t.storage, func() {
		t.forgetDays()
		t.storedDefinitions.Clear() // so that the next submit stores its definition again
	})
	t.files = files.NewWriter(abs, tmpDir, t.durable(), t.corrupt)
	if err := makeStorage(t); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if err := t.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("storage %s: %w", abs, err), t.Close())
	}
	return t, nil
}

// makeStorage creates the missing parts of a storage. The path of the storage must survive a power
// cut like everything below it, so every folder that got a new name is synced.
func makeStorage(t *Tree) error {
	abs := t.dir
	made := []string{abs} // folders with a new name; storage.json syncs abs too, but not in a process that only reads
	for path := abs; ; {
		_, err := os.Lstat(path)
		parent := filepath.Dir(path)
		if err == nil || parent == path {
			break
		}
		path = parent
		made = append(made, path)
	}
	_, err := os.Lstat(filepath.Join(abs, tmpDir)) // the last folder that is created
	if err := makeLayout(t); err != nil {
		return err
	}
	if err == nil || t.options.Durability != Power {
		return nil
	}
	for _, path := range made {
		err := files.SyncFolder(path)
		if _, failed := errors.AsType[*files.SyncError](err); failed {
			return err
		}
		// Another error: a folder that may be searched but not read. Its owner made the name durable long ago, or cannot.
	}
	return nil
}

// makeLayout opens the storage directory and creates its folders. A file in the place of a folder is
// moved to corrupt/, unless a daemon holds the storage: its next sweep does so.
func makeLayout(t *Tree) error {
	err := files.MakeFolder(t.dir)
	if info, statErr := os.Stat(t.dir); err == nil && statErr == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: t.dir, Err: syscall.ENOTDIR}
	}
	if err == nil {
		t.root, err = os.OpenRoot(t.dir)
	}
	if err != nil {
		return fmt.Errorf("make storage %s: %w; %s", t.dir, err, adviceFor(err))
	}
	for _, sub := range []string{
		jobsDir, newDir, lanesDir, schedulesDir, operationsDir, definitionsDir, outboxDir, takenDir, corruptDir, keysDir, tmpDir,
	} {
		path := filepath.Join(t.dir, sub)
		err := t.corrupt.makeFolder(sub)
		if _, ok := errors.AsType[*LockedError](err); ok && sub != jobsDir && sub != operationsDir {
			continue
		}
		if err != nil {
			return fmt.Errorf("make storage %s: %w; %s", t.dir, err, adviceFor(err))
		}
		info, err := os.Lstat(path)
		if err != nil {
			return fmt.Errorf("storage %s: %w", t.dir, err)
		}
		if !info.IsDir() {
			return fmt.Errorf("storage %s: %s is not a directory but a %s; remove it", t.dir, path, files.KindOf(info.Mode()))
		}
		if t.options.GroupControl && (sub == jobsDir || sub == newDir || sub == lanesDir || sub == schedulesDir) {
			if err := os.Chmod(path, groupMode); err != nil {
				return fmt.Errorf("storage %s: let the group write to %s: %w", t.dir, path, err)
			}
		}
	}
	return nil
}

func (t *Tree) open() (err error) {
	if err := t.checkLayout(); err != nil {
		return err
	}
	if t.jobs, err = t.root.OpenRoot(jobsDir); err != nil {
		return err
	}
	if t.folder, err = os.Open(filepath.Join(t.dir, jobsDir)); err != nil {
		return err
	}
	t.Descriptors = machine.NewDescriptors(t.folder)
	t.jobsSync = files.NewFolder(t.folder, t.durable())
	t.opsSync, err = files.OpenFolder(filepath.Join(t.dir, operationsDir), t.durable())
	return err
}

// Close closes the descriptors. It removes nothing. Calls that are still running fail.
func (t *Tree) Close() error {
	var errs []error
	for _, root := range []*os.Root{t.jobs, t.root} {
		if root != nil {
			errs = append(errs, root.Close())
		}
	}
	if t.folder != nil {
		errs = append(errs, t.folder.Close())
	}
	if t.opsSync != nil { // jobsSync syncs by folder
		errs = append(errs, t.opsSync.Close())
	}
	t.daysMu.Lock()
	defer t.daysMu.Unlock()
	for _, folder := range t.days {
		errs = append(errs, folder.Close())
	}
	clear(t.days)
	errs = append(errs, t.live.close(), t.Keys.close())
	return errors.Join(errs...)
}

// Dir returns the absolute path of the storage directory.
func (s *storage) Dir() string { return s.dir }

// JobsDir returns the absolute path of jobs/, the only folder that is watched for control.
func (s *storage) JobsDir() string { return filepath.Join(s.dir, jobsDir) }

// SocketPath returns the path of the unix socket of the daemon.
func (s *storage) SocketPath() string { return filepath.Join(s.dir, socketFile) }

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

// Now returns the time by the clock of the tree.
func (s *storage) Now() time.Time { return s.options.Now() }

// Durability returns the durability that an acknowledgement of this tree promises.
func (s *storage) Durability() Durability { return s.options.Durability }

// Full returns why this process cannot write to the storage, such as "the disk is full"; "" if it
// can. On other systems than Linux it is always "".
func (t *Tree) Full() (string, error) {
	if err := t.Descriptors.ForWork(1); machine.OutOfFiles(err) {
		return err.Error(), nil
	}
	return files.FullReason(t.dir)
}

// OpenLog opens the log of an operation for reading. The error wraps fs.ErrNotExist until the work
// begins.
func (h *operations) OpenLog(id ID) (*os.File, error) {
	f, _, err := h.openRegular(dayFile(id, ".log"))
	return f, err
}

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
