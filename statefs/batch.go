package statefs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
)

// batchLimit bounds how much of a list file is read, in bytes.
const batchLimit = 1 << 30

// Batches are the accepted lists of submits. It creates the parts of a list that a crash left out, and removes the file
// of a list when every record is on disk.
type Batches struct{ owner *Owner }

// list returns the list files in taken/ that have the suffix.
func (b *Batches) list(suffix string) ([]fs.DirEntry, error) {
	entries, err := b.owner.readFolder(takenDir)
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

// batchEntry is one operation of a list, as submitted.
type batchEntry struct {
	id     ID
	status State
	record []byte // the bytes of the line, without the newline
}

// read returns the operations of a list, as submitted.
func (b *Batches) read(file string) ([]batchEntry, error) {
	name := path.Join(takenDir, file)
	data, err := b.owner.readRegular(name, batchLimit)
	if err != nil {
		return nil, err
	}
	var list []batchEntry
	for line := range bytes.Lines(data) {
		var head struct {
			ID     ID    `json:"id"`
			Status State `json:"status"`
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		if err := json.Unmarshal(line, &head); err != nil || !head.Status.Live() {
			return nil, &CorruptError{name, fmt.Sprintf("line %d is no record of a submit: %v", len(list)+1, err)}
		}
		list = append(list, batchEntry{head.ID, head.Status, line})
	}
	return list, nil
}

// IDs returns the operations of a list, given its first one; none if all were created and the
// file is gone.
func (b *Batches) IDs(first ID) (ids []ID, err error) {
	for _, suffix := range []string{batchSuffix, recordsSuffix} {
		list, err := b.read(first.text + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for _, l := range list {
			ids = append(ids, l.id)
		}
		return ids, err
	}
	return nil, nil
}

// Recover creates the missing records and markers of lists that a crash interrupted, and
// returns how many it created. It must run at startup, before the first reconcile.
func (b *Batches) Recover() (made int, err error) {
	for _, suffix := range []string{batchSuffix, recordsSuffix} {
		lists, err := b.list(suffix)
		if err != nil {
			return made, err
		}
		for _, file := range lists {
			list, err := b.read(file.Name())
			if _, corrupt := errors.AsType[*CorruptError](err); corrupt {
				// Without power durability, a power cut can leave such a file.
				if err := b.owner.corrupt.move(path.Join(takenDir, file.Name()), err.Error()); err != nil {
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
			err = ForEachParallel(list, 2*runtime.GOMAXPROCS(0), func(l batchEntry) error {
				n, err := b.recoverOne(l, suffix == batchSuffix)
				count.Add(int64(n))
				return err
			})
			if made += int(count.Load()); err != nil {
				return made, fmt.Errorf("complete a list of submits: %w", err)
			}
			if count.Load() == 0 && suffix == recordsSuffix {
				continue // nothing was written; the list stays until its records are synced
			}
			if err := b.owner.syncOperations(daysOf(list)); err != nil {
				return made, err
			}
			if suffix == batchSuffix {
				b.owner.closeBatch(list[0].id)
			}
		}
	}
	return made, nil
}

// recoverOne creates the missing parts of one operation of a list. If all markers existed once
// (open is false), a missing marker means that the operation ended or that a person removed it.
func (b *Batches) recoverOne(l batchEntry, open bool) (made int, err error) {
	names := MarkerBit(l.status)
	if open {
		names = AllMarkers
	}
	sight, err := b.owner.Observe(l.id, names)
	if err != nil {
		return 0, err
	}
	untouched := len(sight.States) == 1 && sight.States[0] == l.status
	if len(sight.States) > 0 && !untouched || len(sight.States) == 0 && !open {
		return b.recoverMoved(l)
	}
	if there, err := b.owner.readRecordFile(l.id); err != nil || !bytes.Equal(bytes.TrimSuffix(there, []byte("\n")), l.record) {
		rewritten, goesOn, err := b.recoverRecord(l)
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
	return made + 1, b.owner.RestoreMarker(l.id, l.status, at)
}

// recoverMoved restores the record of an operation whose marker has moved to another state, if the
// record is unreadable or missing: a power cut may keep the new marker name and lose the record
// written for it. The work has not started then, because both folders are synced before a start. If
// the log contradicts that, the cause was not a power cut, and a person must decide.
func (b *Batches) recoverMoved(l batchEntry) (made int, err error) {
	if there, err := b.owner.readRecordFile(l.id); err == nil && json.Valid(there) {
		return 0, nil
	}
	sight, err := b.owner.Observe(l.id, AllMarkers)
	if err != nil || len(sight.States) == 0 {
		return 0, err
	}
	if log, err := os.Lstat(b.owner.LogPath(l.id)); err == nil && log.Size() > 0 {
		return 0, nil
	}
	made, _, err = b.recoverRecord(l)
	return made, err
}

// recoverRecord restores the record of an operation of a list if the present one is unreadable or
// missing. goesOn is false if the present record shows that the operation has already moved on.
func (b *Batches) recoverRecord(l batchEntry) (made int, goesOn bool, err error) {
	there, err := b.owner.ReadRecord(l.id)
	_, corrupt := errors.AsType[*CorruptError](err)
	switch {
	case errors.Is(err, fs.ErrNotExist) || corrupt:
		rec, err := decodeRecord(dayFile(l.id, ".json"), l.id, l.record)
		if err != nil {
			return 0, false, err
		}
		if _, err := b.owner.day(rec.ID.Day()); err != nil {
			return 0, false, err
		}
		b.owner.live.Add(rec.ID)
		err = b.owner.writeRecord(rec)
		b.owner.commits.seen(rec.ID)                                   // the file of the list makes a marker that is missing
		return 1, true, errors.Join(err, b.owner.commits.wait(rec.ID)) // before the file of the list is removed
	case err != nil:
		return 0, false, err
	}
	return 0, there.Status == l.status, nil
}

func daysOf(list []batchEntry) map[string]bool {
	days := make(map[string]bool)
	for _, l := range list {
		days[l.id.Day()] = true
	}
	return days
}

// Settle syncs the records of the lists accepted before a time and removes the list files.
// Most records were rewritten since and cost no sync.
func (b *Batches) Settle(before time.Time) error {
	lists, err := b.list(recordsSuffix)
	if err != nil {
		return err
	}
	for _, file := range lists {
		info, err := file.Info()
		if err != nil || info.ModTime().After(before) {
			continue
		}
		list, err := b.read(file.Name())
		if err != nil {
			return err
		}
		if err := ForEachParallel(list, files.MaxSyncs, b.settleRecord); err != nil {
			return err
		}
		if err := b.owner.syncOperations(daysOf(list)); err != nil {
			return err
		}
		if err := b.owner.root.Remove(path.Join(takenDir, file.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a list of submits: %w", err)
		}
	}
	return nil
}

// settleRecord syncs the present record, if it exists.
func (b *Batches) settleRecord(l batchEntry) error {
	return errors.Join(b.owner.commits.wait(l.id), syncRecord(b.owner, l.id))
}
