package statefs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync/atomic"
	"time"
)

// Owner is a storage directory in the hands of its one daemon. It can do what a Tree can, and it alone moves markers, writes
// records and takes requests. It does not serialise: the daemon has one goroutine for each operation at a time.
type Owner struct {
	*Tree
	held *lock
	mark string

	takenSync  *syncFolder
	outboxSync *syncFolder
	outbox     outboxList
	// changed counts what was taken and dropped, settled is the count of which taken/ is known to be on the disk.
	changed, settled atomic.Uint64
}

// Own takes the lock of the directory and removes what an earlier daemon left in tmp/. The error is a *LockedError when another
// daemon has it. The Owner is given up with Release; the tree stays open.
func Own(t *Tree) (*Owner, error) {
	held, err := t.lock()
	if err != nil {
		return nil, err
	}
	o := &Owner{Tree: t, held: held}
	if o.takenSync, err = openSyncFolder(filepath.Join(t.dir, takenDir), t.options.Durability); err != nil {
		return nil, errors.Join(fmt.Errorf("storage %s: %w", t.dir, err), o.Release())
	}
	if o.outboxSync, err = openSyncFolder(filepath.Join(t.dir, outboxDir), t.options.Durability); err != nil {
		return nil, errors.Join(fmt.Errorf("storage %s: %w", t.dir, err), o.Release())
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
	t.live.own(true)
	t.handed.own(true)
	return o, nil
}

// Release gives the lock back.
func (o *Owner) Release() error {
	o.live.own(false)
	o.handed.own(false)
	o.outbox.mu.Lock()
	closed := []error{o.outbox.close()}
	o.outbox.mu.Unlock()
	for _, folder := range []*syncFolder{o.takenSync, o.outboxSync} {
		if folder != nil {
			closed = append(closed, folder.close())
		}
	}
	return errors.Join(errors.Join(closed...), o.held.release())
}

// KeepLock makes the lock file again when somebody removed or replaced it, and reports whether it did: it is by that file that
// others find the daemon. The folder jobs/, which is locked too, keeps a second daemon out meanwhile.
func (o *Owner) KeepLock() (made bool, err error) { return o.held.keep() }

func (o *Owner) emptyTemp() error {
	entries, err := fs.ReadDir(o.root.FS(), tmpDir)
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

// Move renames the marker of an operation: the one write that makes a transition. The error wraps fs.ErrNotExist when the marker
// is not in state from, and fs.ErrExist when there is one in state to already. It is not durable before Sync.
func (o *Owner) Move(id ID, from, to State) error {
	if err := renameFree(o.folder, MarkerName(id, from), MarkerName(id, to)); err != nil {
		return fmt.Errorf("move %s from %s to %s: %w", id, from, to, err)
	}
	return nil
}

// PutBack renames a file of jobs/ to the marker that it was, after somebody gave it a name that means nothing.
func (o *Owner) PutBack(file string, id ID, state State) error {
	if err := renameFree(o.folder, file, MarkerName(id, state)); err != nil {
		return fmt.Errorf("put back %s: %w", file, err)
	}
	return nil
}

// Restore makes the marker of a live operation again.
func (o *Owner) Restore(id ID, state State, at time.Time) error {
	err := o.files.create(path.Join(jobsDir, MarkerName(id, state)), formatStamp(at, nil), false)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Touch has everybody who watches the marker look at the operation again.
func (o *Owner) Touch(id ID, state State) error {
	now := o.options.Now()
	if err := o.root.Chtimes(path.Join(jobsDir, MarkerName(id, state)), now, now); err != nil {
		return fmt.Errorf("touch the marker of %s: %w", id, err)
	}
	return nil
}

// RemoveName removes a file of jobs/; that it is gone already is no error.
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

// Sync makes what was written of an operation durable, and that the requests which were dropped before are gone: one that came
// back after a power cut would be carried out again, and undo what was asked later (seen on btrfs).
func (o *Owner) Sync(id ID) error {
	taken := make(chan error, 1)
	go func() { taken <- o.syncTaken() }()
	return errors.Join(o.syncOperation(id), <-taken)
}

// syncTaken syncs taken/ when anything was taken or dropped since the last time.
func (o *Owner) syncTaken() error {
	changed := o.changed.Load()
	if o.settled.Load() >= changed {
		return nil
	}
	if err := o.takenSync.sync(); err != nil {
		return err
	}
	for {
		settled := o.settled.Load()
		if settled >= changed || o.settled.CompareAndSwap(settled, changed) {
			return nil
		}
	}
}

// SyncAll syncs the folders once, before a daemon that started gives answers from what it read: that may exist in memory only.
func (o *Owner) SyncAll() error {
	return errors.Join(o.jobsSync.sync(), o.takenSync.sync(), o.outboxSync.sync(), o.opsSync.sync())
}

// Finish ends an operation: the terminal record, its directory, and only then the marker goes. After a crash in between, the
// record wins.
func (o *Owner) Finish(rec *Record, marker State) error {
	if err := o.WriteEnd(rec); err != nil {
		return err
	}
	return o.RemoveMarker(rec.ID, marker)
}

// WriteEnd is the first part of Finish: the end is durable when it returns.
func (o *Owner) WriteEnd(rec *Record) error {
	if err := o.WriteRecord(rec); err != nil {
		return err
	}
	return o.syncDay(rec.ID.Day())
}

// RemoveMarker is the second part of Finish; marker is "" when there is none. It needs no sync: a marker that comes back after a
// power cut meets a terminal record.
//
// The line in the list of live operations comes first. The index of the history may not have the end yet, and a start finds it by the
// marker or by that list, whose line of the submit may have been written to a list that this daemon was about to replace.
func (o *Owner) RemoveMarker(id ID, marker State) error {
	o.live.remove(o.Tree, id)
	if marker != "" {
		return o.RemoveName(MarkerName(id, marker))
	}
	return nil
}

// AmendRecord replaces the record of an operation that has ended, and leaves the time of its last change as it is.
func (o *Owner) AmendRecord(rec *Record) error {
	if err := o.writeRecord(rec); err != nil {
		return err
	}
	return o.syncDay(rec.ID.Day())
}

// AppendLog opens the log of an operation for appending and makes it when there is none. It is opened through its own folder,
// never through jobs/, so that writing a line makes no event there.
func (o *Owner) AppendLog(id ID) (*os.File, error) { return o.appendTo(o.LogPath(id), os.O_RDWR) }

// AppendItems opens the item results of an operation for appending, behind the last whole line of them.
func (o *Owner) AppendItems(id ID) (*os.File, error) { return o.appendItemsTo(o.ItemsPath(id), id) }

func (o *Owner) appendItemsTo(name string, id ID) (*os.File, error) {
	f, err := o.appendTo(name, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	if err := mendItems(f); err != nil {
		return nil, errors.Join(fmt.Errorf("mend the item results of %s: %w", id, err), f.Close())
	}
	return f, nil
}

func (o *Owner) appendTo(name string, access int) (*os.File, error) {
	return os.OpenFile(name, access|os.O_APPEND|os.O_CREATE|openNonblock, fileMode)
}

// WriteProgress replaces the progress file, without any sync.
func (o *Owner) WriteProgress(id ID, p Progress) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("progress of %s: %w", id, err)
	}
	return o.files.replaceUnsynced(dayFile(id, ".progress"), append(data, '\n'))
}

// Quarantine moves a file of jobs/ to corrupt/ with the reason beside it. Nothing is ever deleted there.
func (o *Owner) Quarantine(file, reason string) error {
	return o.quarantine(path.Join(jobsDir, file), reason)
}

// QuarantineRecord puts a record that cannot be read into corrupt/. It keeps its name too until another record takes that: without any its
// marker would be one of nobody.
func (o *Owner) QuarantineRecord(id ID, reason string) error {
	name := dayFile(id, ".json")
	info, err := o.root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() { // a folder has one name only, and nothing can be renamed onto it
		return o.quarantine(name, reason)
	}
	target, err := o.setAside(o.root.Link, name, reason)
	if err != nil && target != "" {
		_ = o.root.Remove(target) // it is put there again when this is tried again
	}
	return err
}

func (o *Owner) quarantine(name, reason string) error {
	_, err := o.setAside(o.root.Rename, name, reason)
	return err
}

// setAside gives a file a name in corrupt/, by a rename or a link, and returns that name once it has it.
func (o *Owner) setAside(rename func(from, to string) error, name, reason string) (target string, err error) {
	if err := makeFolder(filepath.Join(o.dir, corruptDir)); err != nil {
		return "", fmt.Errorf("move %s to %s: %w", name, corruptDir, err)
	}
	now := o.options.Now()
	target, err = o.corruptName(now, path.Base(name))
	if err != nil {
		return "", err
	}
	if err := rename(name, target); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		return "", fmt.Errorf("move %s to %s: %w", name, corruptDir, err)
	}
	note := fmt.Sprintf("%s\n%q: %s\n", now.Format(StampFormat), name, reason)
	return target, o.files.replaceUnsynced(target+".reason", []byte(note))
}

// corruptName returns a free name in corrupt/. The name of the file is cut where the result would be too long for a file system;
// the whole one stands in the reason.
func (o *Owner) corruptName(now time.Time, base string) (string, error) {
	base = base[:min(len(base), 200)]
	for n := 1; ; n++ {
		name := path.Join(corruptDir, fmt.Sprintf("%s_%s", now.Format("2006-01-02T15-04-05.000000"), base))
		if n > 1 {
			name += fmt.Sprintf(".%d", n)
		}
		_, err := o.root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return name, nil
		}
		if err != nil {
			return "", fmt.Errorf("find a name in %s: %w", corruptDir, err)
		}
	}
}

// LiveList returns the IDs that the cached list has as live, for finding records whose marker is gone.
func (o *Owner) LiveList() (map[ID]bool, error) { return o.readLive() }

// TrimLiveList rewrites the cached list when it has grown with operations that ended.
func (o *Owner) TrimLiveList() error { return o.trimLive() }

// SetLiveList rewrites the cached list.
func (o *Owner) SetLiveList(live map[ID]bool) error { return o.compactLive(live) }

// JobsFolder returns the identity of the folder jobs/ that the tree has open and of the one that has its name now.
func (o *Owner) JobsFolder() (held, named fs.FileInfo, err error) {
	if held, err = o.folder.Stat(); err != nil {
		return nil, nil, err
	}
	named, err = os.Lstat(filepath.Join(o.dir, jobsDir))
	return held, named, err
}
