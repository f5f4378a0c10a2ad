package statefs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
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

func batchName(recs []*Record, suffix string) string {
	return path.Join(takenDir, recs[0].ID.text+suffix)
}

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
	if err := t.files.replace(batchName(recs, batchSuffix), lines.Bytes(), false); err != nil {
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
func (t *Tree) closeBatch(recs []*Record) {
	if t.options.Durability == Power {
		_ = t.root.Rename(batchName(recs, batchSuffix), batchName(recs, recordsSuffix))
		return
	}
	_ = t.root.Remove(batchName(recs, batchSuffix)) // nobody promised that the records survive a power cut
}

// dropBatch takes back the file of a list of which nothing came. The error says that the next start will make it all the same.
func (t *Tree) dropBatch(recs []*Record) error {
	err := t.root.Remove(batchName(recs, batchSuffix))
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

// readBatch returns the records of a list as they were submitted.
func (o *Owner) readBatch(file string) ([]*Record, error) {
	name := path.Join(takenDir, file)
	data, err := o.readRegular(o.root, name, batchLimit)
	if err != nil {
		return nil, err
	}
	var recs []*Record
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, recordLimit)
	for lines.Scan() {
		var head struct {
			ID ID `json:"id"`
		}
		if err := json.Unmarshal(lines.Bytes(), &head); err != nil {
			return nil, &CorruptError{name, err.Error()}
		}
		rec, err := decodeRecord(name, head.ID, lines.Bytes())
		if err != nil {
			return nil, err
		}
		recs = append(recs, rec)
	}
	if err := lines.Err(); err != nil {
		return nil, &CorruptError{name, err.Error()}
	}
	return recs, nil
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
			recs, err := o.readBatch(file.Name())
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
			days := make(map[string]bool)
			for _, rec := range recs {
				days[rec.ID.Day()] = true
				count, err := o.recoverOne(rec, suffix == batchSuffix)
				if made += count; err != nil {
					return made, fmt.Errorf("complete a list of submits: %w", err)
				}
			}
			if len(recs) == 0 {
				continue
			}
			if err := o.syncOperations(days); err != nil {
				return made, err
			}
			if suffix == batchSuffix {
				o.closeBatch(recs)
			}
		}
	}
	return made, nil
}

// recoverOne makes what is missing of one operation of a list. Where all markers were there once, a missing one is of an operation that ended, or was
// removed by hand; and a marker that has been moved had its record synced before.
func (o *Owner) recoverOne(rec *Record, open bool) (made int, err error) {
	sight, err := o.Look(rec.ID)
	if err != nil {
		return 0, err
	}
	untouched := len(sight.States) == 1 && sight.States[0] == rec.Status
	if len(sight.States) > 0 && !untouched || len(sight.States) == 0 && !open {
		return 0, nil
	}
	there, err := o.ReadRecord(rec.ID)
	_, corrupt := errors.AsType[*CorruptError](err)
	switch {
	case errors.Is(err, fs.ErrNotExist) || corrupt:
		if _, err := o.day(rec.ID.Day()); err != nil {
			return 0, err
		}
		o.live.add(o.Tree, rec)
		if err := o.writeRecord(rec); err != nil {
			return 0, err
		}
		made++
	case err != nil:
		return 0, err
	case there.Status.Terminal() || there.Status != rec.Status:
		return 0, nil
	}
	if untouched {
		return made, nil
	}
	return made + 1, o.Restore(rec.ID, rec.Status, rec.CreatedAt)
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
		recs, err := o.readBatch(file.Name())
		if err != nil {
			return err
		}
		days := make(map[string]bool)
		for _, rec := range recs {
			days[rec.ID.Day()] = true
		}
		if err := sideBySide(recs, maxSyncs, o.settleRecord); err != nil {
			return err
		}
		if err := o.syncOperations(days); err != nil {
			return err
		}
		if err := o.root.Remove(path.Join(takenDir, file.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget a list of submits: %w", err)
		}
	}
	return nil
}

// settleRecord syncs a record as it is now, if it is still there.
func (o *Owner) settleRecord(rec *Record) error {
	f, _, err := openRegular(o.root, dayFile(rec.ID, ".json"))
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
