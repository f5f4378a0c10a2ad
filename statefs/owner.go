package statefs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
)

// Owner is a storage directory owned by its one daemon. It can do everything a Tree can, and it
// alone moves markers, writes records and takes requests. It does not serialise calls: the daemon
// uses one goroutine per operation at a time.
type Owner struct {
	*Tree
	Requests  *Requests
	Batches   *Batches
	Output    *Output
	Lanes     *OwnerLanes
	Schedules *OwnerSchedules
	Outbox    *OwnerOutbox
	Inbox     *Inbox
	Live      *LiveList
	Records   *RecordList
	Numbers   *Numbers
	Journal   *OwnerJournal

	held *lock
	mark string
}

// Own takes the lock of the directory and removes what an earlier daemon left in tmp/. The error is
// a *LockedError if another daemon holds it. Release ends the ownership; the tree stays open.
func Own(t *Tree) (*Owner, error) {
	held, err := t.lock()
	if err != nil {
		return nil, err
	}
	o := &Owner{
		Tree: t, held: held, Requests: &Requests{jobsFolder: t.jobsFolder},
		Output: &Output{t.operations}, Lanes: &OwnerLanes{t.Lanes}, Schedules: &OwnerSchedules{t.Schedules},
		Outbox: &OwnerOutbox{Outbox: t.Outbox, list: cachedList{storage: t.storage, name: outboxFile, owned: true}},
		Inbox:  &Inbox{storage: t.storage}, Live: t.live, Numbers: t.numbers,
	}
	o.Batches, o.Journal = &Batches{o}, &OwnerJournal{owner: o}
	o.Records = &RecordList{
		cachedList: cachedList{storage: t.storage, name: recordsFile, owned: true}, operations: t.operations, live: t.live,
	}
	t.corrupt.owned.Store(true)
	if err := errors.Join(t.corrupt.clearReservedNames(), t.corrupt.clearFolders()); err != nil {
		return nil, errors.Join(err, o.Release())
	}
	if o.Requests.folder, err = files.OpenFolder(filepath.Join(t.dir, takenDir), t.durable()); err != nil {
		return nil, errors.Join(fmt.Errorf("storage %s: %w", t.dir, err), o.Release())
	}
	if o.Outbox.sync, err = files.OpenFolder(filepath.Join(t.dir, outboxDir), t.durable()); err != nil {
		return nil, errors.Join(fmt.Errorf("storage %s: %w", t.dir, err), o.Release())
	}
	o.Inbox.taken = o.Requests.folder
	if err := o.Journal.replay(); err != nil {
		return nil, errors.Join(err, o.Release())
	}
	if err := t.makeMark(); err != nil {
		return nil, errors.Join(err, o.Release())
	}
	if o.mark, err = t.readMark(); err != nil {
		return nil, errors.Join(err, o.Release())
	}
	if err := o.emptyTemp(); err != nil {
		return nil, errors.Join(err, o.Release())
	}
	t.live.setOwned(true)
	t.handover.reset(true)
	return o, nil
}

// Release releases the lock.
func (o *Owner) Release() error {
	o.live.setOwned(false)
	o.corrupt.owned.Store(false)
	o.handover.reset(false)
	o.commits.log.Store(nil) // also if it has failed
	closed := []error{o.Outbox.list.close(), o.Records.close()}
	for _, folder := range []*files.Folder{o.Requests.folder, o.Outbox.sync} {
		if folder != nil {
			closed = append(closed, folder.Close())
		}
	}
	return errors.Join(errors.Join(closed...), o.held.release())
}

// SetSubmitListener sets the listener for all later submits and requests of this process while it owns the
// storage; nil removes it.
func (o *Owner) SetSubmitListener(to SubmitListener) {
	o.handover.mu.Lock()
	defer o.handover.mu.Unlock()
	o.handover.listener = to
}

// RestoreLock creates the lock file again if it was removed or replaced, and reports whether it
// did: other processes find the daemon by that file. In the meantime the lock on the folder jobs/
// excludes a second daemon.
func (o *Owner) RestoreLock() (made bool, err error) { return o.held.restore() }

func (o *Owner) emptyTemp() error {
	entries, err := o.readFolder(tmpDir)
	if err != nil {
		return fmt.Errorf("empty %s: %w", tmpDir, err)
	}
	for _, entry := range entries {
		if err := o.root.RemoveAll(path.Join(tmpDir, entry.Name())); err != nil {
			return fmt.Errorf("empty %s: %w", tmpDir, err)
		}
	}
	return nil
}

// Move renames the marker of an operation; this one write is the transition. The error wraps
// fs.ErrNotExist if there is no marker in state from, and fs.ErrExist if there already is one in
// state to. It is not durable before Sync.
func (o *Owner) Move(id ID, from, to State) error {
	if err := o.commits.wait(id); err != nil {
		return err
	}
	if err := files.RenameFree(o.folder, MarkerName(id, from), MarkerName(id, to)); err != nil {
		return fmt.Errorf("move %s from %s to %s: %w", id, from, to, err)
	}
	o.commits.seen(id)
	return nil
}

// RestoreName renames a file of jobs/ back to a marker after a person gave the marker an unknown
// name.
func (o *Owner) RestoreName(file string, id ID, state State) error {
	if err := files.RenameFree(o.folder, file, MarkerName(id, state)); err != nil {
		return fmt.Errorf("put back %s: %w", file, err)
	}
	o.commits.seen(id)
	return nil
}

// RestoreMarker creates the marker of a live operation again.
func (o *Owner) RestoreMarker(id ID, state State, at time.Time) error {
	err := o.commits.wait(id)
	if err == nil {
		err = o.files.Create(path.Join(jobsDir, MarkerName(id, state)), formatStamp(at, nil), false)
	}
	if err == nil || errors.Is(err, fs.ErrExist) {
		o.commits.seen(id)
		return nil
	}
	return err
}

// Touch updates the times of the marker, so that every watcher sees an event for the operation.
func (o *Owner) Touch(id ID, state State) error {
	now := o.options.Now()
	if err := o.root.Chtimes(path.Join(jobsDir, MarkerName(id, state)), now, now); err != nil {
		return fmt.Errorf("touch the marker of %s: %w", id, err)
	}
	return nil
}

// RemoveName removes a file of jobs/; a missing file is not an error.
func (o *Owner) RemoveName(file string) error {
	if err := o.jobs.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", file, err)
	}
	return nil
}

// WriteRecord replaces the record of an operation.
func (o *Owner) WriteRecord(rec *Record) error {
	rec.UpdatedAt = o.options.Now()
	return o.writeRecord(rec)
}

// Sync makes the writes of an operation durable, and the removal of requests dropped before: if one
// came back after a power cut, it would be carried out again and undo a later request (seen on
// btrfs).
func (o *Owner) Sync(id ID) error {
	taken := make(chan error, 1)
	go func() { taken <- o.Requests.sync() }()
	if o.Journal.InUse() {
		return errors.Join(o.commits.wait(id), <-taken)
	}
	return errors.Join(o.syncOperation(id), <-taken)
}

// SyncAll syncs the folders once, before a starting daemon answers from the state that it read,
// which may exist in memory only.
func (o *Owner) SyncAll() error {
	return errors.Join(o.jobsSync.Sync(), o.Requests.folder.Sync(), o.Outbox.sync.Sync(), o.opsSync.Sync())
}

// WriteEnd ends an operation: it writes the terminal record and syncs its folder, and RemoveMarker removes the marker
// only then. After a crash in between, the record wins.
func (o *Owner) WriteEnd(rec *Record) error {
	if err := o.WriteRecord(rec); err != nil {
		return err
	}
	return o.syncRecordOf(rec.ID)
}

// syncRecordOf makes the record of an operation durable.
func (o *Owner) syncRecordOf(id ID) error {
	if o.Journal.InUse() {
		return o.commits.wait(id)
	}
	return o.syncDay(id.Day())
}

// RemoveMarker removes the marker of an ended operation, "" if there is none. The error wraps
// fs.ErrNotExist if the marker is not there, so that a person has moved or removed it. It needs no
// sync: if the marker comes back after a power cut, the record is terminal.
//
// It first adds the end to the list of live operations. The history index may not have the end yet,
// and a start finds the end by the marker or by that list. The line of the submit alone is not
// enough: it may have gone to a list that this daemon was about to replace.
func (o *Owner) RemoveMarker(id ID, marker State) error {
	o.live.remove(id)
	if marker == "" {
		o.commits.seen(id)
		return nil
	}
	err := o.jobs.Remove(MarkerName(id, marker))
	if err == nil || errors.Is(err, fs.ErrNotExist) { // another name of it is removed by a second reconcile, or a start
		o.commits.seen(id)
	}
	if err != nil {
		return fmt.Errorf("remove the marker of %s: %w", id, err)
	}
	return nil
}

// AmendRecord replaces the record of a finished operation without changing UpdatedAt.
func (o *Owner) AmendRecord(rec *Record) error {
	if err := o.writeRecord(rec); err != nil {
		return err
	}
	o.commits.seen(rec.ID)
	return o.syncRecordOf(rec.ID)
}

// Quarantine moves a file of jobs/ to corrupt/ with the reason beside it. Files in corrupt/ are
// never deleted.
func (o *Owner) Quarantine(file, reason string) error {
	return o.corrupt.move(path.Join(jobsDir, file), reason)
}

// QuarantineRecord links an unreadable record into corrupt/ before another one is written. The
// record keeps its name until then, because a marker without a record would belong to no operation.
// Anything but a regular file is left to that write.
func (o *Owner) QuarantineRecord(id ID, reason string) error {
	name := dayFile(id, ".json")
	if info, err := o.root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil
	}
	return o.corrupt.link(name, reason)
}

// ClearRecord moves anything but a regular file from the name of a record to corrupt/.
func (o *Owner) ClearRecord(id ID) error { return o.corrupt.clearName(dayFile(id, ".json")) }

// MarkName is the environment variable that identifies every process started by a daemon, with all
// descendants. Only the daemon sets it.
const MarkName = "JOBDIR_MARK"

// readMark returns the mark of the storage, "" if no daemon has created one yet. It consists of a
// random text from storage.json, so that it is the same by every path, and the place of the folder,
// so that a copy of the storage has another mark.
func (s *storage) readMark() (string, error) {
	info, _, err := s.readStorage()
	if err != nil && !errors.Is(err, ErrBadCounter) || info.Mark == "" {
		return "", err
	}
	folder, err := s.root.Stat(".")
	if err != nil {
		return "", fmt.Errorf("mark of %s: %w", s.dir, err)
	}
	return info.Mark + placeOf(folder), nil
}

// placeOf identifies a folder among all folders of the machine. The inode number alone is not
// enough: the root folder has the same number in every file system, and snapshots and disk images
// keep all numbers. The device number may change after an unmount, but then no process with an open
// file there is left.
func placeOf(folder fs.FileInfo) string {
	stat, ok := folder.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf(".%x.%x", stat.Dev, stat.Ino)
}

// makeMark creates the mark of the storage if it has none.
func (t *Tree) makeMark() error {
	if info, _, err := t.readStorage(); err != nil || info.Mark != "" {
		return err
	}
	return t.setMark(rand.Text())
}

func (t *Tree) setMark(text string) error {
	return t.numbers.changeStorage(func(info *storageInfo) error {
		info.Mark = text
		return nil
	})
}

// RestoreMark writes the mark into storage.json again if that file was removed or replaced, and
// reports whether it did. The next daemon needs the mark to recognise the processes that this one
// started.
func (o *Owner) RestoreMark() (made bool, err error) {
	text, _, _ := strings.Cut(o.mark, ".")
	if info, whole, err := o.readStorage(); err != nil || whole && info.Mark == text {
		return false, err
	}
	err = o.setMark(text)
	return err == nil, err
}

// Mark returns the environment entry, "JOBDIR_MARK=...", of all processes of this storage. It does
// not change if the storage is reached by another path or moved within its file system; a copy has
// another one.
func (o *Owner) Mark() string { return MarkName + "=" + o.mark }

// MarkOf is Mark for the storage directory dir, which may be in use; "" if no daemon has ever used
// it.
func MarkOf(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("mark of %s: %w", dir, err)
	}
	t := &storage{dir: dir, root: root}
	mark, err := t.readMark()
	if err = errors.Join(err, root.Close()); err != nil || mark == "" {
		return "", err
	}
	return MarkName + "=" + mark, nil
}

// FolderGoneError reports that a folder of the storage was removed or replaced while its daemon
// ran. The daemon has the old folder open and would write where no other program can see it, so it
// ends. The next start creates the folder again.
type FolderGoneError struct{ Path string }

func (e *FolderGoneError) Error() string {
	return fmt.Sprintf("%s was removed or replaced while the daemon ran: put it back, or start the daemon again, which makes a new one; running commands continue", e.Path)
}

// Unwrap returns fs.ErrNotExist.
func (*FolderGoneError) Unwrap() error { return fs.ErrNotExist }

// RestoreFolders creates removed folders of the storage that the daemon does not keep open, and
// returns their names. It moves files in the place of folders to corrupt/. For the open ones the
// error is a *FolderGoneError. The watch checks jobs/.
func (o *Owner) RestoreFolders() (made []string, err error) {
	for _, held := range []struct {
		name   string
		folder *files.Folder
	}{{operationsDir, o.opsSync}, {takenDir, o.Requests.folder}, {outboxDir, o.Outbox.sync}} {
		path := filepath.Join(o.dir, held.name)
		switch is, err := held.folder.Is(path); {
		case err != nil:
			return made, fmt.Errorf("stat %s: %w", path, err)
		case !is:
			return made, &FolderGoneError{path}
		}
	}
	if err := o.Journal.checkFolder(); err != nil {
		return made, err
	}
	for _, name := range []string{newDir, lanesDir, schedulesDir, definitionsDir, corruptDir, keysDir, tmpDir} {
		path := filepath.Join(o.dir, name)
		_, missing := os.Lstat(path)
		if err := o.corrupt.makeFolder(name); err != nil {
			return made, fmt.Errorf("make %s again: %w", path, err)
		}
		if missing == nil {
			continue
		}
		made = append(made, name)
		if name == definitionsDir {
			o.storedDefinitions.Clear() // so that the next submit stores its definition again
		}
	}
	err = o.corrupt.clearFolders()
	o.forgetDays()
	return made, err
}

// clearReservedNames moves files of the wrong kind from the names that the daemon opens, so that
// they cannot keep it from starting.
func (c *corruptFolder) clearReservedNames() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", c.dir, err)
	}
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case name == socketFile && !entry.IsDir(): // an old socket, or a file that the new one replaces
			continue
		case name == socketFile, name == storageFile, name == liveFile, name == outboxFile, name == recordsFile,
			strings.HasPrefix(name, "history.db"):
		case strings.HasPrefix(name, "keeper-") && (strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, ".log")):
		default:
			continue
		}
		if err := c.clearName(name); err != nil {
			return err
		}
	}
	return nil
}

// Delete removes ended operations of one day; none may be live. One rename of its record makes each
// operation disappear as a whole. The rest only frees space: after a crash, another Delete finishes
// it.
func (o *Owner) Delete(day string, ids []ID) error {
	if err := o.commits.forget(ids); err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		err := o.root.Rename(dayFile(id, ".json"), dayFile(id, deletedSuffix))
		if err != nil && o.corrupt.clearName(dayFile(id, deletedSuffix)) == nil { // a folder cannot be replaced
			err = o.root.Rename(dayFile(id, ".json"), dayFile(id, deletedSuffix))
		}
		if err != nil && !files.IsMissing(err) {
			errs = append(errs, fmt.Errorf("delete %s: %w", id, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := o.syncDay(day); err != nil { // the record must not come back without its log
		return err
	}
	err := o.removeFiles(day, ids)
	if err != nil {
		err = fmt.Errorf("delete operations of %s: %w", day, err)
	}
	o.dropDay(day)
	return err
}

// removeFiles removes every file of operations of one day. The renamed record goes last, because it
// shows that files are left to remove.
func (o *Owner) removeFiles(day string, ids []ID) error {
	those := make(map[string]bool, len(ids))
	for _, id := range ids {
		those[id.text] = true
	}
	folder := path.Join(operationsDir, day)
	entries, err := o.readFolder(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var last []string
	for _, entry := range entries {
		name := path.Join(folder, entry.Name())
		head, suffix, _ := strings.Cut(entry.Name(), ".")
		switch {
		case !those[head]:
		case "."+suffix == deletedSuffix && entry.Type().IsRegular():
			last = append(last, name)
		case "."+suffix == deletedSuffix: // it was in the place of the record
			err = o.corrupt.clearName(name)
		default:
			err = o.root.RemoveAll(name)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range last {
		if err := o.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// DeleteDay removes the folder of a day with all its content. It first renames the folder into
// tmp/, which the next start empties after a crash. The caller must know that nothing in it has to
// be kept.
func (o *Owner) DeleteDay(day string) error {
	o.dropDay("")
	if err := o.commits.forgetDay(day); err != nil {
		return err
	}
	name := path.Join(tmpDir, "deleted-"+day)
	err := o.root.RemoveAll(name)
	if err == nil {
		err = o.root.Rename(path.Join(operationsDir, day), name)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = o.opsSync.Sync()
	}
	if err == nil {
		err = o.root.RemoveAll(name)
	}
	if err != nil {
		return fmt.Errorf("delete the operations of %s: %w", day, err)
	}
	return nil
}

// dropDay removes the empty folder of a day and forgets the cached day folders, because a name may
// refer to another folder from now on.
func (o *Owner) dropDay(day string) {
	if o.DayInUse(day) {
		return
	}
	if day != "" && o.root.Remove(path.Join(operationsDir, day)) != nil {
		return
	}
	o.daysMu.Lock()
	defer o.daysMu.Unlock()
	clear(o.days)
}

// RenameDamaged renames an unusable file of the storage to NAME.damaged, replacing an earlier one.
func (o *Owner) RenameDamaged(name string) error {
	return o.root.Rename(name, name+".damaged")
}

// ReadPublished returns the record of an operation as this process published it, but only once, on
// the first call. The caller owns the result. It equals the record on disk unless that has changed
// since, so it is only for an operation that the daemon has not activated before; isNew is true
// then. Otherwise it is [Tree.ReadRecord].
func (o *Owner) ReadPublished(id ID) (rec *Record, isNew bool, err error) {
	if rec := o.handover.take(id); rec != nil {
		return rec, true, nil
	}
	rec, err = o.Records.read(id)
	return rec, false, err
}

// JournalFollower says up to which line, at most a given one, it has what was committed, durably. A checkpoint waits
// for the answer, and goes no further. It may bring itself up to that line first, until ctx ends.
type JournalFollower func(ctx context.Context, upTo uint64) (has uint64)

// Follow sets the follower of the journal; nil removes it.
func (j *OwnerJournal) Follow(f JournalFollower) { j.follower.Store(&f) }

func (j *OwnerJournal) followed(ctx context.Context, upTo uint64) uint64 {
	if f := j.follower.Load(); f != nil && *f != nil {
		return (*f)(ctx, upTo)
	}
	return upTo
}

// Reach returns the numbers of the last line and of the last durable one, and false if the journal is not in use.
func (j *OwnerJournal) Reach() (last, durable uint64, inUse bool) {
	log := j.owner.commits.log.Load()
	if log == nil {
		return 0, 0, false
	}
	durable = log.Status().Durable
	return max(durable, log.Last()), durable, true
}

// Storage identifies the storage that the lines of its journal belong to.
func (j *OwnerJournal) Storage() string {
	text, _, _ := strings.Cut(j.owner.mark, ".")
	return text
}

// LastLine returns the number of the last line, when the journal is not in use.
func (j *OwnerJournal) LastLine() (uint64, error) {
	info, _, err := j.owner.readStorage()
	return info.LSN, err
}
