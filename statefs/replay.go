package statefs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/statefs/commit"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/journal"
	"github.com/jobdir/jobdir/statefs/machine"
)

// OwnerJournal is the journal of a storage, for its owner.
type OwnerJournal struct {
	owner  *Owner
	folder fs.FileInfo // while it is in use
	opened uint64      // during a replay: number of the first line of the use of the journal that has ended
	// needed means that a start on a full disk could not do without the journal, which stays in use. unwritten are the
	// lines whose files it could not write.
	needed    bool
	unwritten []commit.Line
	follower  atomic.Pointer[JournalFollower]
	cleared   *cleared // until a follower has read it, or the next use
	takenBack sync.Map // the IDs of the starts that the replay took back
}

// ErrBehind is wrapped by the error of Use if a full disk kept files from being brought up to date.
var ErrBehind = commit.ErrBehind

// Use commits through the journal until ctx ends, if the options say so, and begins with closing begun. When ctx ends,
// it brings all files up to date; after nil, an older version can take the storage over. After an error the next owner
// brings the files up to date. On a full disk, where the journal cannot begin, changes are committed by files: see
// InUse. It must be called once, before anything is committed.
func (j *OwnerJournal) Use(ctx context.Context, begun chan<- struct{}) error {
	if j.Wanted() || j.needed {
		began, err := j.use(ctx, begun)
		if began || j.needed || !files.DiskFull(err) {
			return err
		}
	} else {
		j.cleared = nil
		_ = j.clear() // so that an old journal does not count if storage.json is lost; a file in its place is no journal
	}
	close(begun)
	<-ctx.Done()
	return nil
}

// use is Use with a journal. began is false if that could not begin.
func (j *OwnerJournal) use(ctx context.Context, begun chan<- struct{}) (began bool, err error) {
	log, reader, err := j.open()
	if err != nil {
		return false, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- log.Run(running) }()
	if err = j.begin(log); err == nil {
		began = true
		close(begun)
		select {
		case <-ctx.Done():
		case <-log.Broken():
		}
	}
	stop()
	if err = errors.Join(err, <-ended); began && err == nil {
		j.owner.commits.log.Store(nil)
		if err = j.setLayout(storageVersion, log.Last()); files.DiskFull(err) {
			err = errors.Join(ErrBehind, err)
		}
	}
	return began, errors.Join(err, reader.Close())
}

// Wanted reports whether the options say that the journal is used.
func (j *OwnerJournal) Wanted() bool { return j.owner.options.Commit.Method != CommitFiles }

// InUse reports whether changes are committed by the journal now.
func (j *OwnerJournal) InUse() bool { return j.owner.commits.log.Load() != nil }

// Seen says that no marker has to be moved for the last record of an operation.
func (j *OwnerJournal) Seen(id ID) { j.owner.commits.seen(id) }

// Status describes the journal in use, or returns false.
func (j *OwnerJournal) Status() (s commit.Status, inUse bool) {
	log := j.owner.commits.log.Load()
	if log == nil {
		return s, false
	}
	return log.Status(), true
}

// open opens the journal of a storage whose files have everything.
func (j *OwnerJournal) open() (*commit.Log, *journal.Reader, error) {
	o := j.owner
	if err := o.corrupt.makeFolder(journalDir); err != nil {
		return nil, nil, fmt.Errorf("make the journal: %w", err)
	}
	if err := o.syncFolder("."); err != nil {
		return nil, nil, err
	}
	info, _, err := o.readStorage()
	if err != nil {
		return nil, nil, err
	}
	reader, err := readJournal(j.path(), func(journalLine) {})
	if err != nil && j.needed {
		return nil, nil, err
	}
	if err != nil { // of an earlier use, which has ended: the files have all of it
		if reader != nil {
			_ = reader.Close() // opened for reading
		}
		if err := j.clear(); err != nil {
			return nil, nil, err
		}
		if reader, err = readJournal(j.path(), func(journalLine) {}); err != nil {
			return nil, nil, err
		}
	}
	options := commit.Options{
		Journal: journal.Options{Origin: j.origin(), Durable: o.durable()}, Write: j.writeRecord, Sync: j.syncFiles,
		Followed: j.followed, Retryable: retryable, Unwritten: j.unwritten,
	}
	if size := o.options.Commit.SegmentSize; size > 0 {
		options.Journal.SegmentSize = max(size, minSegment)
	}
	log, err := commit.Open(reader, info.LSN, options)
	if err != nil {
		return nil, nil, errors.Join(err, reader.Close())
	}
	return log, reader, nil
}

// minSegment is the least size of a segment: some dozens of frames.
const minSegment = 128 << 10

// retryable reports whether the error of a write may go away by itself.
func retryable(err error) bool {
	_, failed := errors.AsType[*files.SyncError](err)
	_, gone := errors.AsType[*FolderGoneError](err)
	return !failed && !gone && !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.EROFS)
}

// begin makes the journal the authority. Its first line is durable before storage.json names it.
func (j *OwnerJournal) begin(log *commit.Log) error {
	if len(j.unwritten) > 0 {
		j.owner.commits.opened = j.opened
		return j.enter(log) // storage.json names the journal already
	}
	if err := log.Room(minSegment / 8); err != nil {
		return err
	}
	if err := log.Note(fmt.Appendf(nil, `{"opened":%q}`, j.owner.Now().Format(time.RFC3339Nano))); err != nil {
		return err
	}
	j.owner.commits.opened = log.Last()
	if err := j.setLayout(journalLayout, log.Last()); err != nil {
		return err
	}
	return j.enter(log)
}

// enter makes all changes go to the journal from now on.
func (j *OwnerJournal) enter(log *commit.Log) error {
	folder, err := os.Lstat(j.path())
	if err != nil {
		return fmt.Errorf("stat the journal: %w", err)
	}
	j.folder = folder
	j.owner.commits.log.Store(log)
	return nil
}

// setLayout writes the layout of the storage and the number of a line of the journal.
func (j *OwnerJournal) setLayout(version int, lsn uint64) error {
	return j.owner.numbers.changeStorage(func(info *storageInfo) error {
		info.Version, info.LSN = version, lsn
		return nil
	})
}

func (j *OwnerJournal) path() string { return filepath.Join(j.owner.dir, journalDir) }

// clear removes the segments of a journal that is not needed any more.
func (j *OwnerJournal) clear() error {
	entries, err := j.owner.readFolder(journalDir)
	if err != nil {
		return fmt.Errorf("list the journal: %w", err)
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".journal") {
			name := path.Join(journalDir, entry.Name())
			if err := j.owner.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove a closed journal: %w", err)
			}
		}
	}
	return nil
}

// checkFolder returns a *FolderGoneError if the journal is in use and its folder was removed or replaced.
func (j *OwnerJournal) checkFolder() error {
	if !j.InUse() {
		return nil
	}
	if now, err := os.Lstat(j.path()); err == nil && os.SameFile(now, j.folder) {
		return nil
	}
	return &FolderGoneError{j.path()}
}

// origin says where this process has the storage.
func (j *OwnerJournal) origin() journal.Origin {
	at := journal.Origin{Boot: machine.This().Boot, Mount: files.MountOf(j.owner.folder)}
	if info, _, err := j.owner.readStorage(); err == nil {
		at.Storage = info.Mark
	}
	if folder, err := j.owner.root.Stat("."); err == nil {
		at.Place = placeOf(folder)
	}
	return at
}

// writeRecord writes the file of a record that is in the journal.
func (j *OwnerJournal) writeRecord(text string, record []byte, isNew bool) error {
	o := j.owner
	id, err := ParseID(text)
	if err != nil {
		return err
	}
	if err := j.makeLateMarker(id); err != nil {
		return err
	}
	if o.readDay(id.Day()) == nil {
		// The folder of a storage that was moved or unmounted must not be made anew.
		operations := filepath.Join(o.dir, operationsDir)
		if is, err := o.opsSync.Is(operations); err != nil || !is {
			return &FolderGoneError{operations}
		}
		if _, err := o.day(id.Day()); err != nil {
			return err
		}
	}
	name := dayFile(id, ".json")
	if isNew {
		err = o.files.Create(name, record, false)
	}
	if !isNew || errors.Is(err, fs.ErrExist) {
		err = o.files.ReplaceUnsynced(name, record)
	}
	if err == nil {
		o.Records.noteWritten(id, record)
	}
	return err
}

// makeLateMarker makes the marker of an operation of a list that could not be made when the list was accepted.
func (j *OwnerJournal) makeLateMarker(id ID) error {
	late, is := j.owner.lateMarkers.Load(id)
	if !is {
		return nil
	}
	rec, is := late.(*Record)
	if !is {
		return fmt.Errorf("the late marker of %s is a %T", id, late)
	}
	if err := j.owner.createMarker(rec); errors.Is(err, fs.ErrExist) && j.owner.HasMarker(id, rec.Status) {
		j.owner.commits.seen(id)
	} else if err != nil {
		return err // also while a folder has its name, until a sweep moves that to corrupt/
	}
	j.owner.lateMarkers.Delete(id)
	return nil
}

// manySyncs is from how many files on one sync of their file system is used instead of one for each.
const manySyncs = 64

// syncFiles makes durable what is in jobs/, and the records of some operations. First it writes the waiting lines of
// live.list.
func (j *OwnerJournal) syncFiles(ids []string) error {
	o := j.owner
	o.live.flush()
	if !o.durable() {
		return nil
	}
	if len(ids) >= manySyncs {
		done, err := files.SyncFileSystem(o.folder)
		if done || err != nil {
			return err
		}
	}
	days := make(map[string]bool)
	list := make([]ID, 0, len(ids))
	for _, text := range ids {
		id, err := ParseID(text)
		if err != nil {
			return err
		}
		days[id.Day()] = true
		list = append(list, id)
	}
	err := errors.Join(
		ForEachParallel(list, files.MaxSyncs, func(id ID) error { return syncRecord(o, id) }),
		o.syncOperations(days))
	if _, failed := errors.AsType[*files.SyncError](err); !failed && machine.OutOfFiles(err) {
		if done, err := files.SyncFileSystem(o.folder); done || err != nil { // it needs no descriptor
			return err
		}
	}
	return err
}

// replay brings the files of a storage up to its journal, after a crash. Then the journal is not needed any more.
func (j *OwnerJournal) replay() error {
	info, err := j.layout()
	if err != nil || info.Version != journalLayout {
		return err
	}
	if j.owner.options.Commit.WithoutJournal {
		return j.setLayout(storageVersion, info.LSN+skipped)
	}
	j.opened = info.LSN
	var lines []journalLine
	reader, err := readJournal(j.path(), func(l journalLine) { lines = append(lines, l) })
	if errors.Is(err, fs.ErrNotExist) {
		return &JournalLostError{j.path(), "is missing"}
	}
	if reader == nil {
		return err
	}
	end := reader.End()
	// Without power durability, a power cut may take any part of the journal: it ends there.
	cut := !j.owner.durable() && end.Entry > 0 && !j.sameMachine(end)
	if _, damaged := errors.AsType[*journal.DamageError](err); damaged && !cut && j.owner.options.Commit.Repair != nil {
		return errors.Join(reader.Close(), j.repair(info))
	}
	first := end.Entry
	if len(lines) > 0 {
		first = lines[0].number
	}
	switch lost := lostPart(j.path(), info, first, end); {
	case err != nil && !cut:
	case lost != nil && (!cut || end.Entry >= info.LSN):
		err = lost
	default:
		err = j.apply(lines, end)
	}
	if err = errors.Join(err, reader.Close()); err != nil {
		return err
	}
	if !j.Wanted() {
		j.cleared = &cleared{lines, end}
	}
	return j.leave(max(end.Entry, info.LSN))
}

// leave ends the need for a journal whose last line has a number, once the files have everything. On a full disk it may
// stay needed.
func (j *OwnerJournal) leave(last uint64) (err error) {
	if len(j.unwritten) == 0 {
		err = j.setLayout(storageVersion, last)
	}
	if j.needed = len(j.unwritten) > 0 || files.DiskFull(err); j.needed {
		return nil
	}
	if err == nil && !j.Wanted() {
		err = j.clear() // it must not count again if storage.json is lost
	}
	return err
}

// skipped is how many numbers are passed over after a part of the journal was lost: records may have some of them.
const skipped = 1 << 32

// layout reads storage.json. If that is lost, the journal may be needed.
func (j *OwnerJournal) layout() (storageInfo, error) {
	info, _, err := j.owner.readStorage()
	if errors.Is(err, ErrBadCounter) {
		err = nil // who needs a number reports it
	}
	if entries, listed := j.owner.readFolder(journalDir); info.Version == 0 && listed == nil && len(entries) > 0 {
		info.Version = journalLayout
	}
	return info, err
}

// change is what a start needs of a line of the journal.
type change struct {
	ID          ID               `json:"id"`
	Status      State            `json:"status"`
	Next        State            `json:"next"`
	Trailing    bool             `json:"trailing"`
	UpdatedAt   time.Time        `json:"updated_at"`
	CreatedAt   time.Time        `json:"created_at"`
	Transitions []PastTransition `json:"transitions"`
	Deleted     ID               `json:"deleted"`
	DeletedDay  string           `json:"deleted_day"`

	journalLine
}

// marker returns the state of the marker, "" for none.
func (c *change) marker() State {
	switch {
	case c.Trailing:
		return Trailing
	case c.Next.Live():
		return c.Next
	case c.Status.Live():
		return c.Status
	}
	return ""
}

// replayed is what the journal says of an operation.
type replayed struct {
	last    change
	earlier []string // see commit.Known
	late    bool
	edited  bool // last says something else than the journal
}

// sameMachine reports whether the journal was written on this boot of the machine and this mount of the storage.
func (j *OwnerJournal) sameMachine(end journal.End) bool {
	here := j.origin()
	return end.Header.Boot == here.Boot && end.Header.Mount == here.Mount
}

// base returns the number up to which the files have every line, and the number up to which the folder jobs/ has.
func (j *OwnerJournal) base(end journal.End) (written, viewed uint64, copied bool) {
	switch {
	case end.Header.Place != j.origin().Place:
		// Lines of earlier uses are in the files, and the storage may have been used without the journal since.
		return j.opened, j.opened, true
	case j.sameMachine(end):
		return end.Checkpoint, max(end.Viewed, end.Checkpoint), false
	case j.owner.durable():
		return end.Checkpoint, end.Checkpoint, false
	}
	return 0, 0, false // without power durability, a power cut may have taken anything
}

// apply makes the files of all operations with lines that the files may lack.
func (j *OwnerJournal) apply(lines []journalLine, end journal.End) error {
	written, viewed, copied := j.base(end)
	known := make(map[ID]*replayed)
	for _, l := range lines {
		if l.number <= written {
			continue
		}
		c := change{journalLine: l}
		if err := json.Unmarshal(l.text, &c); err != nil {
			return fmt.Errorf("change %d in the journal %s cannot be read: %w", l.number, j.path(), err)
		}
		note(known, c, viewed)
	}
	list := make([]*replayed, 0, len(known))
	ids := make([]string, 0, len(known))
	for id, r := range known {
		list, ids = append(list, r), append(ids, id.text)
		j.owner.live.Add(id) // a start looks at what is in the list
		if r.last.marker() == "" {
			j.owner.live.remove(id)
		}
	}
	misnamed, err := j.misnamedMarkers()
	if err != nil {
		return err
	}
	var mu sync.Mutex // guards j.unwritten
	err = ForEachParallel(list, 2*runtime.GOMAXPROCS(0), func(r *replayed) error {
		if !copied && j.sameMachine(end) && misnamed[r.last.ID] == "" {
			if err := j.takeBackStart(r); err != nil {
				return err
			}
		}
		isNewer, err := j.restoreRecord(r)
		if isNewer {
			return nil // the journal is an older copy than the record
		}
		if err != nil && !files.DiskFull(err) {
			return err
		}
		if failed := j.restoreMarker(r, copied, misnamed[r.last.ID]); failed != nil || err == nil {
			return failed
		}
		mu.Lock()
		defer mu.Unlock()
		j.unwritten = append(j.unwritten, commit.Line{ID: r.last.ID.text, Number: r.last.number, Text: r.last.text})
		return nil
	})
	if err != nil {
		return fmt.Errorf("replay the journal %s: %w", j.path(), err)
	}
	return j.syncFiles(ids)
}

// note adds a line to what is known.
func note(known map[ID]*replayed, c change, viewed uint64) {
	switch {
	case c.DeletedDay != "":
		for id := range known {
			if id.Day() == c.DeletedDay {
				delete(known, id)
			}
		}
		return
	case c.ID == (ID{}):
		delete(known, c.Deleted)
		return
	}
	r := known[c.ID]
	if r == nil {
		r = new(replayed)
		known[c.ID] = r
	}
	r.last = c
	if c.number <= viewed {
		r.earlier = []string{string(c.marker())}
		return
	}
	r.late = true
	r.earlier = append(r.earlier, string(c.marker()))
	if n := len(c.Transitions); n > 0 {
		r.earlier = append(r.earlier, string(c.Transitions[n-1].From))
	}
}

// judge decides about the markers that a start finds.
func (r *replayed) judge(markers []commit.Marker, copied bool) commit.Answer {
	return commit.Judge(commit.Known{
		State: string(r.last.marker()), At: r.last.UpdatedAt, Earlier: r.earlier, Late: r.late, Copied: copied,
	}, markers)
}

// restoreRecord writes the record of an operation as its last line has it, unless its file is as new. isNewer means
// that the file is newer.
func (j *OwnerJournal) restoreRecord(r *replayed) (isNewer bool, err error) {
	id := r.last.ID
	var there struct {
		ID  ID     `json:"id"`
		LSN uint64 `json:"lsn"`
	}
	data, err := readWritten(j.owner.operations, id)
	if err == nil {
		err = json.Unmarshal(data, &there)
	}
	isNewer = there.LSN > r.last.number
	if err == nil && there.ID == id && (isNewer || there.LSN == r.last.number && !r.edited) {
		return isNewer, nil
	}
	if _, err := j.owner.day(id.Day()); err != nil {
		return false, err
	}
	return false, j.owner.files.ReplaceUnsynced(dayFile(id, ".json"), append(slices.Clip(r.last.text), '\n'))
}

// misnamedMarkers returns the files in jobs/ that have an ID and an unknown ending: a person may have renamed a marker,
// and the daemon died before it put that back.
func (j *OwnerJournal) misnamedMarkers() (map[ID]string, error) {
	entries, err := j.owner.readFolder(jobsDir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", jobsDir, err)
	}
	found := make(map[ID]string)
	for _, entry := range entries {
		if name, ok := ParseName(entry.Name()); ok && name.State == "" && name.Action == "" && entry.Type().IsRegular() {
			found[name.ID] = entry.Name()
		}
	}
	return found, nil
}

// restoreMarker brings the marker of an operation up to its last line. A file that may be the marker under another name
// is "" if there is none.
func (j *OwnerJournal) restoreMarker(r *replayed, copied bool, misnamed string) error {
	o, id, state := j.owner, r.last.ID, r.last.marker()
	markers, err := j.markersOf(id)
	if err != nil {
		return err
	}
	switch r.judge(markers, copied) {
	case commit.Make:
		if misnamed != "" && o.RestoreName(misnamed, id, state) == nil {
			return nil
		}
		return o.RestoreMarker(id, state, r.last.CreatedAt)
	case commit.Rename:
		err := files.RenameFree(o.folder, MarkerName(id, State(markers[0].State)), MarkerName(id, state))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
			return nil // a person is faster, and the start looks again
		}
		return err
	case commit.Leave:
	}
	return nil
}

// syncRecord syncs the file of a record, if it exists.
func syncRecord(o *Owner, id ID) error {
	f, _, err := o.openRegular(dayFile(id, ".json"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, files.ErrIrregular) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // opened for reading
	return o.files.Sync(f)
}

// unsure returns the operations of the lines behind the damage of a journal.
func unsure(lines []journalLine) []UnsureOperation {
	last := make(map[ID]UnsureOperation)
	for _, l := range lines {
		var c change
		if json.Unmarshal(l.text, &c) != nil {
			continue
		}
		if id := cmp.Or(c.ID, c.Deleted); id != (ID{}) {
			last[id] = UnsureOperation{ID: id, LSN: l.number, Status: c.marker()}
			if c.marker() == "" {
				last[id] = UnsureOperation{ID: id, LSN: l.number, Status: c.Status}
			}
		}
	}
	return slices.SortedFunc(maps.Values(last), func(a, b UnsureOperation) int { return cmp.Compare(a.LSN, b.LSN) })
}

// repair replays the journal up to its damage, and moves the segments with the rest to corrupt/.
func (j *OwnerJournal) repair(info storageInfo) error {
	reader, err := journal.NewReader(j.path())
	if err != nil {
		return err
	}
	defer func() { _ = reader.Close() }() // opened for reading
	did := JournalRepair{}
	var lines, rest []journalLine
	for frame, err := range reader.Frames() {
		if damage, is := errors.AsType[*journal.DamageError](err); is {
			did.Damage = damage
			break
		}
		if err != nil {
			return err
		}
		lines = append(lines, linesOf(frame)...)
	}
	for frame, err := range reader.Rest() {
		if err != nil {
			return err
		}
		rest = append(rest, linesOf(frame)...)
	}
	did.Last, did.Moved, did.Unsure = reader.End().Entry, reader.Damaged(), unsure(rest)
	highest := max(info.LSN, did.Last)
	for i := range did.Unsure {
		u := &did.Unsure[i]
		u.Has, highest = j.recordHas(u.ID, u.LSN), max(highest, u.LSN)
	}
	// The segments keep their names until storage.json says that no journal is needed: until then a start must refuse.
	for _, name := range did.Moved {
		if err := j.owner.corrupt.link(path.Join(journalDir, name), did.Damage.Error()); err != nil {
			return err
		}
	}
	err = errors.Join(j.apply(lines, reader.End()), j.owner.syncFolder(corruptDir))
	if err == nil {
		err = j.setLayout(storageVersion, highest+skipped)
	}
	if err != nil {
		return err
	}
	for _, name := range did.Moved {
		if err := j.owner.root.Remove(path.Join(journalDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a damaged part of the journal: %w", err)
		}
	}
	j.owner.options.Commit.Repair(did)
	return j.owner.syncFolder(journalDir)
}

// recordHas reports whether the file of a record has a change.
func (j *OwnerJournal) recordHas(id ID, number uint64) bool {
	data, err := readWritten(j.owner.operations, id)
	var there struct {
		LSN uint64 `json:"lsn"`
	}
	return err == nil && json.Unmarshal(data, &there) == nil && there.LSN >= number
}

// Since returns what a follower of a storage lacks if it has everything up to the line after, the oldest first, and the
// number of the last line. It reads the journal only if there is a further line. It must not be called while the
// journal is in use.
func (j *OwnerJournal) Since(storage string, after uint64) (lines []Committed, last uint64, err error) {
	info, _, err := j.owner.readStorage()
	if err != nil {
		return nil, 0, err
	}
	if storage != j.Storage() {
		return nil, 0, fmt.Errorf("%w: it is of another storage", ErrNotFollowed)
	}
	left := info.Version == journalLayout // a full disk: see leave
	if last = info.LSN; !left && after == last {
		return nil, last, nil
	}
	var first uint64
	var unreadable error
	end, err := j.readAgain(func(l journalLine) {
		first = cmp.Or(first, l.number)
		if l.number <= after || l.number > last && !left {
			return
		}
		c, is, err := committedOf(l)
		if unreadable = cmp.Or(unreadable, err); is {
			lines = append(lines, c)
		}
	})
	if err = errors.Join(err, unreadable); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrNotFollowed, err)
	}
	if left {
		last = max(last, end.Entry)
	}
	if after > last || end.Entry < last || first > after+1 || lostPart(j.path(), info, first, end) != nil {
		return nil, 0, fmt.Errorf("%w: the follower has line %d, the storage has %d, and the journal has %d to %d",
			ErrNotFollowed, after, last, first, end.Entry)
	}
	return lines, last, nil
}

// cleared is what Own has read of a journal that is removed since.
type cleared struct {
	lines []journalLine
	end   journal.End
}

// readAgain calls do with the lines of the journal that Own has found.
func (j *OwnerJournal) readAgain(do func(journalLine)) (end journal.End, err error) {
	if read := j.cleared; read != nil {
		j.cleared = nil
		for _, l := range read.lines {
			do(l)
		}
		return read.end, nil
	}
	reader, err := readJournal(j.path(), do)
	if reader == nil {
		return end, err
	}
	return reader.End(), errors.Join(err, reader.Close())
}

// committedOf returns what a line is to a follower, and false if it is nothing.
func committedOf(l journalLine) (c Committed, is bool, err error) {
	contains := func(member string) bool { return bytes.Contains(l.text, []byte(`"`+member+`":`)) }
	if !contains("finished_seq") && !contains("needs_person_seq") && !contains("deleted") && !contains("deleted_day") {
		return c, false, nil
	}
	var e change
	if err := json.Unmarshal(l.text, &e); err != nil {
		return c, false, fmt.Errorf("line %d cannot be read: %w", l.number, err)
	}
	c = Committed{LSN: l.number, Deleted: e.Deleted, Day: e.DeletedDay}
	if e.ID != (ID{}) {
		c.Record, err = decodeRecord(fmt.Sprintf("line %d", l.number), e.ID, l.text)
	}
	return c, err == nil, err
}
