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
	"github.com/jobdir/jobdir/statefs/journal"
	"github.com/jobdir/jobdir/statefs/machine"
	"github.com/jobdir/jobdir/statefs/steps"
)

// Tree is a storage directory as any process may use it: to read, submit and request. It is safe
// for concurrent use, also by several processes. Only an Owner moves markers.
type Tree struct {
	*storage
	*jobsFolder
	*operations
	// Descriptors refuses work for which too few files can be opened.
	Descriptors *machine.Descriptors

	Lanes     *LaneFiles
	Schedules *Schedules
	Keys      *Keys
	Outbox    *Outbox

	numbers           *Numbers
	drafting          sync.Mutex // held while an operation with a key gets its number and is announced
	live              *LiveList
	handover          handover
	storedDefinitions sync.Map // hashes of definitions known to be on disk
	lateMarkers       sync.Map // the *Record of each operation of a list whose marker could not be made, by ID
}

// Open opens a storage directory and creates its missing parts. The caller closes the tree.
func Open(dir string, options Options) (*Tree, error) {
	if options.Durability == "" {
		options.Durability = Power
	}
	if options.Durability != Power && options.Durability != Process {
		return nil, fmt.Errorf("durability %q is not known: use %q or %q", options.Durability, Power, Process)
	}
	if err := options.Commit.check(); err != nil {
		return nil, err
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("storage %s: %w", dir, err)
	}
	s := &storage{dir: abs, options: options}
	s.commits = &commits{dir: abs, owned: func() bool { return s.corrupt.owned.Load() }, left: s.needsJournal}
	live := &LiveList{cachedList{storage: s, name: liveFile, waits: func() bool { return s.commits.log.Load() != nil }}}
	t := &Tree{
		storage: s, Lanes: &LaneFiles{s}, Schedules: &Schedules{s}, Keys: &Keys{storage: s}, Outbox: &Outbox{s},
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
	if t.opened, err = t.folder.Stat(); err != nil {
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

// Full returns why this process cannot write to the storage, such as "the disk is full"; "" if it
// can. On other systems than Linux it is always "".
func (t *Tree) Full() (string, error) {
	if err := t.Descriptors.ForWork(1); machine.OutOfFiles(err) {
		return err.Error(), nil
	}
	reason, err := files.FullReason(t.dir)
	if reason == "" && err == nil {
		reason = t.commits.full()
	}
	return reason, err
}

// Freshen copies the progress and the last sign of life from ID.progress if they are newer than the
// record. The record of a finished operation is never older.
func (t *Tree) Freshen(rec *Record) {
	if rec.Status.Terminal() {
		return
	}
	defer rec.keepToSteps()
	p, err := t.ReadProgress(rec.ID)
	if err != nil {
		return // the file may be lost
	}
	// A heartbeat in the future dates from before the clock was set back, and so the file is newer.
	if known := rec.HeartbeatAt; known != nil && !p.At.After(*known) && !known.After(t.options.Now()) {
		return
	}
	rec.Progress, rec.HeartbeatAt = &p, &p.At
}

// keepToSteps corrects the progress of an operation with steps from its record: the work may have
// reported it before its step ended.
func (r *Record) keepToSteps() {
	if len(r.Steps) == 0 || r.Progress == nil {
		return
	}
	done, all := steps.Progress(r.Steps)
	total := int64(all)
	p := *r.Progress
	p.Done, p.Total = int64(done), &total
	if r.Phase != "" {
		p.Phase = r.Phase
	}
	if at := r.CurrentStep(); p.Step != nil && (at == nil || at.Name != p.Step.Name || at.Status == steps.Pending) {
		p.Step = nil
	}
	r.Progress = &p
}

// JournalSummary describes the journal of a storage.
type JournalSummary struct {
	// InUse reports that the journal has changes that the files of operations may lack. Otherwise the last daemon has
	// stopped in order, and no journal is needed.
	InUse bool `json:"in_use"`
	// Segments is the number of files, and Lines how many lines they have, First to Last.
	Segments int    `json:"segments"`
	Lines    int    `json:"lines"`
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	// Checkpoint is the number up to which the files of operations have every change.
	Checkpoint uint64 `json:"checkpoint"`
}

// ReadJournal calls do with the number and the text of each line in the journal of a storage directory, the oldest
// first, until do fails. A daemon may use the storage: then it reads what was written before. The error is a
// *journal.DamageError or a *JournalLostError if the journal is not whole; the summary is of what can be read.
func ReadJournal(dir string, do func(number uint64, line []byte) error) (sum JournalSummary, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return sum, fmt.Errorf("read the journal: %w", err)
	}
	info, _, err := (&storage{dir: dir, root: root}).readStorage()
	if err = errors.Join(err, root.Close()); err != nil && !errors.Is(err, ErrBadCounter) {
		return sum, err
	}
	folder := filepath.Join(dir, journalDir)
	found, err := journal.Read(folder, func(f *journal.Frame) error {
		for i, line := range f.Entries {
			if err := do(f.First+uint64(i), line); err != nil {
				return err
			}
		}
		return nil
	})
	sum = JournalSummary{
		InUse: info.Version == journalLayout, Segments: found.Segments, Lines: found.Entries, First: found.First,
		Last: found.Entry, Checkpoint: found.Checkpoint,
	}
	if _, statErr := os.Stat(folder); errors.Is(statErr, fs.ErrNotExist) {
		if err = nil; sum.InUse {
			err = &JournalLostError{folder, "is missing"}
		}
		return sum, err
	}
	if err == nil && sum.InUse {
		err = lostPart(folder, info, found.First, found.End)
	}
	return sum, err
}

// lostPart returns a *JournalLostError if a journal in use, which begins with line first, has not what storage.json
// says, or lacks lines behind its last checkpoint.
func lostPart(folder string, info storageInfo, first uint64, end journal.End) error {
	switch {
	case end.Entry < info.LSN:
		return &JournalLostError{folder, fmt.Sprintf("ends with change %d, before %d", end.Entry, info.LSN)}
	case end.Entry > 0 && info.Mark != "" && end.Header.Storage != info.Mark:
		return &JournalLostError{folder, "belongs to another storage"}
	case first > max(end.Checkpoint+1, info.LSN):
		return &JournalLostError{folder, fmt.Sprintf("begins with change %d, and the files may lack those after %d", first,
			end.Checkpoint)}
	}
	return nil
}

// AsJournalDamage returns the damage of a journal that is the cause of an error, and whether it is.
func AsJournalDamage(err error) (*journal.DamageError, bool) {
	return errors.AsType[*journal.DamageError](err)
}
