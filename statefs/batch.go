package statefs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// A list of submits is one file with all of its records, a line each, in taken/ under the ID of its first operation. It is synced before anything
// else of the list is written, and it is what makes the list accepted: a start makes what is missing of it. So the records of a list need
// no sync of their own before the answer.
//
//	taken/ID.batch    the records and the markers are being made
//	taken/ID.records  they are there; the records may not be on the disk yet, and are read from here when they are lost
//
// Some time later the records are synced (SettleBatches) and the file goes.
const (
	batchSuffix   = ".batch"
	recordsSuffix = ".records"
)

// batchLimit bounds what is read of a list.
const batchLimit = 1 << 30

// batchName is the file of a list, by its first operation.
func batchName(first ID, suffix string) string { return path.Join(takenDir, first.text+suffix) }

// openBatch writes the file of a list, under its name and durable.
func (t *Tree) openBatch(recs []*Record) error {
	var lines bytes.Buffer
	for _, rec := range recs {
		data, err := marshalRecord(rec)
		if err != nil {
			return fmt.Errorf("record of %s: %w", rec.ID, err)
		}
		lines.Write(data)
		lines.WriteByte('\n')
	}
	if err := t.files.replace(batchName(recs[0].ID, batchSuffix), lines.Bytes(), false); err != nil {
		return err
	}
	return t.syncFolderOf(takenDir)
}

// syncFolderOf syncs a folder of the storage that is synced seldom.
func (t *Tree) syncFolderOf(name string) error {
	if t.options.Durability != Power {
		return nil
	}
	folder, err := openSyncFolder(filepath.Join(t.dir, name), t.options.Durability)
	if err != nil {
		return err
	}
	return errors.Join(folder.sync(), folder.close())
}

// closeBatch notes that records and markers of a list are there. What stays of one where that cannot be noted is cleared away at the next start.
func (t *Tree) closeBatch(first ID) {
	if t.options.Durability == Power {
		_ = t.root.Rename(batchName(first, batchSuffix), batchName(first, recordsSuffix))
		return
	}
	_ = t.root.Remove(batchName(first, batchSuffix)) // nobody promised that the records survive a power cut
}

// dropBatch takes back the file of a list of which nothing came. The error says that the next start will make it all the same.
func (t *Tree) dropBatch(first ID) error {
	err := t.root.Remove(batchName(first, batchSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// batches returns the files of lists in taken/, without their ending.
func (o *Owner) batches(suffix string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(o.root.FS(), takenDir)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", takenDir, err)
	}
	var found []fs.DirEntry
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), suffix) && isBatch(entry) {
			found = append(found, entry)
		}
	}
	return found, nil
}

func isBatch(entry fs.DirEntry) bool {
	text, open := strings.CutSuffix(entry.Name(), batchSuffix)
	if !open {
		text, open = strings.CutSuffix(entry.Name(), recordsSuffix)
	}
	_, err := ParseID(text)
	return open && err == nil && entry.Type().IsRegular()
}

// listed is one operation of a list as it was submitted.
type listed struct {
	id     ID
	status State
	record []byte // as it was written, without the newline
}

// readBatch returns the operations of a list as they were submitted.
func (o *Owner) readBatch(file string) ([]listed, error) {
	name := path.Join(takenDir, file)
	data, err := o.readRegular(o.root, name, batchLimit)
	if err != nil {
		return nil, err
	}
	var list []listed
	for line := range bytes.Lines(data) {
		var head struct {
			ID     ID    `json:"id"`
			Status State `json:"status"`
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		if err := json.Unmarshal(line, &head); err != nil || !head.Status.Live() {
			return nil, &CorruptError{name, fmt.Sprintf("line %d is no record of a submit: %v", len(list)+1, err)}
		}
		list = append(list, listed{head.ID, head.Status, line})
	}
	return list, nil
}

// RecoverBatches makes what is missing of lists that were cut off, by the death of the daemon or of the machine, and returns how many records and
// markers it made. It is for a start, before anything is looked at.
func (o *Owner) RecoverBatches() (made int, err error) {
	for _, suffix := range []string{batchSuffix, recordsSuffix} {
		files, err := o.batches(suffix)
		if err != nil {
			return made, err
		}
		for _, file := range files {
			list, err := o.readBatch(file.Name())
			if _, corrupt := errors.AsType[*CorruptError](err); corrupt {
				// Without the promise to survive a power cut, this is what one leaves.
				if err := o.quarantine(path.Join(takenDir, file.Name()), err.Error()); err != nil {
					return made, err
				}
				continue
			}
			if err != nil {
				return made, err
			}
			if len(list) == 0 {
				continue
			}
			var count atomic.Int64
			err = sideBySide(list, 2*runtime.GOMAXPROCS(0), func(l listed) error {
				n, err := o.recoverOne(l, suffix == batchSuffix)
				count.Add(int64(n))
				return err
			})
			if made += int(count.Load()); err != nil {
				return made, fmt.Errorf("complete a list of submits: %w", err)
			}
			if count.Load() == 0 && suffix == recordsSuffix {
				continue // nothing was written; the list stays until its records are synced
			}
			if err := o.syncOperations(daysOf(list)); err != nil {
				return made, err
			}
			if suffix == batchSuffix {
				o.closeBatch(list[0].id)
			}
		}
	}
	return made, nil
}

// recoverOne makes what is missing of one operation of a list. Where all markers were there once, a missing one is of an operation that ended, or was
// removed by hand.
func (o *Owner) recoverOne(l listed, open bool) (made int, err error) {
	names := NameOf(l.status)
	if open {
		names = allMarkers
	}
	sight, err := o.LookFor(l.id, names)
	if err != nil {
		return 0, err
	}
	untouched := len(sight.States) == 1 && sight.States[0] == l.status
	if len(sight.States) > 0 && !untouched || len(sight.States) == 0 && !open {
		return o.recoverMoved(l)
	}
	if there, err := o.readRecordFile(l.id); err != nil || !bytes.Equal(bytes.TrimSuffix(there, []byte("\n")), l.record) {
		rewritten, goesOn, err := o.recoverRecord(l)
		if made += rewritten; err != nil || !goesOn {
			return made, err
		}
	}
	if untouched {
		return made, nil
	}
	at := l.id.Time(time.Local)
	if rec, err := decodeRecord(dayFile(l.id, ".json"), l.id, l.record); err == nil {
		at = rec.CreatedAt
	}
	return made + 1, o.Restore(l.id, l.status, at)
}

// recoverMoved makes the record of an operation whose marker has gone on to another state, when it has none that can be read: a power cut may keep
// the new name of a marker and lose that of the record which was written for it. Nothing has begun then, since both folders are synced before that; where
// the log says that something has, it was no power cut, and a person decides.
func (o *Owner) recoverMoved(l listed) (made int, err error) {
	if there, err := o.readRecordFile(l.id); err == nil && json.Valid(there) {
		return 0, nil
	}
	sight, err := o.LookFor(l.id, allMarkers)
	if err != nil || len(sight.States) == 0 {
		return 0, err
	}
	if log, err := os.Lstat(o.LogPath(l.id)); err == nil && log.Size() > 0 {
		return 0, nil
	}
	made, _, err = o.recoverRecord(l)
	return made, err
}

// recoverRecord makes the record of an operation of a list that has another one than it was submitted with, when it has none that can be read. goesOn is
// false when the other one says that the operation has gone on.
func (o *Owner) recoverRecord(l listed) (made int, goesOn bool, err error) {
	there, err := o.ReadRecord(l.id)
	_, corrupt := errors.AsType[*CorruptError](err)
	switch {
	case errors.Is(err, fs.ErrNotExist) || corrupt:
		rec, err := decodeRecord(dayFile(l.id, ".json"), l.id, l.record)
		if err != nil {
			return 0, false, err
		}
		if _, err := o.day(rec.ID.Day()); err != nil {
			return 0, false, err
		}
		o.live.add(o.Tree, rec)
		return 1, true, o.writeRecord(rec)
	case err != nil:
		return 0, false, err
	}
	return 0, there.Status == l.status, nil
}

func daysOf(list []listed) map[string]bool {
	days := make(map[string]bool)
	for _, l := range list {
		days[l.id.Day()] = true
	}
	return days
}

// SettleBatches syncs the records of lists that were accepted before a time, and forgets those lists. Most records have been written anew
// since and cost nothing.
func (o *Owner) SettleBatches(before time.Time) error {
	files, err := o.batches(recordsSuffix)
	if err != nil {
		return err
	}
	for _, file := range files {
		info, err := file.Info()
		if err != nil || info.ModTime().After(before) {
			continue
		}
		list, err := o.readBatch(file.Name())
		if err != nil {
			return err
		}
		if err := sideBySide(list, maxSyncs, o.settleRecord); err != nil {
			return err
		}
		if err := o.syncOperations(daysOf(list)); err != nil {
			return err
		}
		if err := o.root.Remove(path.Join(takenDir, file.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget a list of submits: %w", err)
		}
	}
	return nil
}

// settleRecord syncs a record as it is now, if it is still there.
func (o *Owner) settleRecord(l listed) error {
	f, _, err := openRegular(o.root, dayFile(l.id, ".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // opened for reading
	o.files.slots <- struct{}{}
	defer func() { <-o.files.slots }()
	if err := f.Sync(); err != nil {
		return &SyncError{f.Name(), err}
	}
	return nil
}
