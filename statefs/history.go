package statefs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// deletedSuffix is what a record ends in once its operation is being deleted: from that rename on there is no such operation, and
// what is left of its files goes.
const deletedSuffix = ".deleted"

// reserveEnds is how many numbers of ends are reserved at once.
const reserveEnds = 1000

// ReserveEnds reserves a block of numbers for ends, which nobody had before and nobody gets again, also after a crash. least is
// the lowest number that will do. It returns the first one and the one behind the last. The block is on the disk, whatever the
// durability is, before it returns.
func (o *Owner) ReserveEnds(least uint64) (first, end uint64, err error) {
	err = o.changeStorage(func(info *storageInfo) error {
		first = max(info.NextFinished, least, 1)
		end = first + reserveEnds
		info.NextFinished = end
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("reserve numbers of ends: %w", err)
	}
	return first, end, nil
}

// NextEnd returns the first number of an end that nobody has reserved. It reserves nothing.
func (o *Owner) NextEnd() (uint64, error) {
	info, err := o.storageInfo()
	return max(info.NextFinished, 1), err
}

// Given reports whether an operation of this storage may have had a number: one that is lower than the next one and has no record
// was pruned or deleted.
func (t *Tree) Given(number uint64) (bool, error) {
	if next, end := t.sequence.position(); end > 0 && number >= end-sequenceBlock && number < end {
		return number < next, nil
	}
	info, err := t.storageInfo()
	return number < info.NextSequence, err
}

// position returns the next number of the block in hand and the end of the block; both are 0 when there is none.
func (s *sequence) position() (next, end uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next, s.end
}

var dayPattern = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)

// Days returns the days that have a folder in operations/, the newest first.
func (t *Tree) Days() ([]string, error) {
	entries, err := fs.ReadDir(t.root.FS(), operationsDir)
	if err != nil {
		return nil, fmt.Errorf("list the days of the history: %w", err)
	}
	var days []string
	for _, entry := range entries {
		if entry.IsDir() && dayPattern.MatchString(entry.Name()) {
			days = append(days, entry.Name())
		}
	}
	slices.Sort(days)
	slices.Reverse(days)
	return days, nil
}

// DayFiles is what the folder of a day holds.
type DayFiles struct {
	// Records are the operations that have a record, the newest first.
	Records []ID
	// Deleted are the operations whose deletion was cut off.
	Deleted []ID
	// Others says that there are files of operations without a record, or of nobody.
	Others bool
}

// ListDay lists the folder of a day. It opens no file. A day without a folder is empty.
func (t *Tree) ListDay(day string) (DayFiles, error) {
	var files DayFiles
	folder, err := t.root.Open(path.Join(operationsDir, day))
	if errors.Is(err, fs.ErrNotExist) {
		return files, nil
	}
	if err != nil {
		return files, fmt.Errorf("list the operations of %s: %w", day, err)
	}
	defer func() { _ = folder.Close() }() // opened for reading
	parts := make(map[ID]bool)
	for {
		names, err := folder.Readdirnames(4096)
		for _, name := range names {
			files.add(day, name, parts)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return files, fmt.Errorf("list the operations of %s: %w", day, err)
		}
	}
	for _, id := range slices.Concat(files.Records, files.Deleted) {
		delete(parts, id)
	}
	files.Others = files.Others || len(parts) > 0
	slices.SortFunc(files.Records, func(a, b ID) int {
		return cmp.Or(cmp.Compare(b.Sequence(), a.Sequence()), strings.Compare(b.text, a.text))
	})
	return files, nil
}

func (f *DayFiles) add(day, name string, parts map[ID]bool) {
	head, suffix, _ := strings.Cut(name, ".")
	id, err := ParseID(head)
	switch {
	case err != nil || id.Day() != day:
		f.Others = true
	case suffix == "json":
		f.Records = append(f.Records, id)
	case "."+suffix == deletedSuffix:
		f.Deleted = append(f.Deleted, id)
	default:
		parts[id] = true
	}
}

// EverLive returns every ID that the cached list names, ended ones too, and false when there is no list.
func (o *Owner) EverLive() (ids map[ID]bool, there bool, err error) {
	if _, err := o.root.Lstat(liveFile); errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	ids = make(map[ID]bool)
	err = o.scanLive(func(id ID, _ bool) { ids[id] = true })
	return ids, true, err
}

// Footprint returns how many bytes the files of an ended operation have. What its record says is not looked for: each look costs
// as much as a tenth of writing the record.
func (t *Tree) Footprint(rec *Record) int64 {
	sum := t.sizeOf(rec.ID, ".json")
	if rec.LogBytes != nil {
		sum += *rec.LogBytes
	} else {
		sum += t.sizeOf(rec.ID, ".log")
	}
	if rec.Processed > 0 || rec.FailedN > 0 || rec.RetryOf != nil {
		sum += t.sizeOf(rec.ID, itemsSuffix)
	}
	for _, name := range rec.Artifacts {
		if !filepath.IsLocal(name) {
			continue
		}
		if info, err := t.root.Lstat(path.Join(dayFile(rec.ID, ".artifacts"), name)); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
	}
	return sum
}

// Delete removes ended operations of one day. Each vanishes as a whole by one rename of its record, and what follows only
// makes room: after a crash the rest is removed by deleting it again. None of them may be live.
func (o *Owner) Delete(day string, ids []ID) error {
	var errs []error
	for _, id := range ids {
		err := o.root.Rename(dayFile(id, ".json"), dayFile(id, deletedSuffix))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
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
	o.dropDay(day)
	return err
}

// removeFiles removes every file of operations of one day; the former record goes last, since it tells that there is something left
// to do.
func (o *Owner) removeFiles(day string, ids []ID) error {
	those := make(map[string]bool, len(ids))
	for _, id := range ids {
		those[id.text] = true
	}
	folder := path.Join(operationsDir, day)
	entries, err := fs.ReadDir(o.root.FS(), folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete operations of %s: %w", day, err)
	}
	var last []string
	for _, entry := range entries {
		name := path.Join(folder, entry.Name())
		head, suffix, _ := strings.Cut(entry.Name(), ".")
		switch {
		case !those[head]:
		case "."+suffix == deletedSuffix:
			last = append(last, name)
		default:
			if err := o.root.RemoveAll(name); err != nil {
				return fmt.Errorf("delete operations of %s: %w", day, err)
			}
		}
	}
	for _, name := range last {
		if err := o.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete operations of %s: %w", day, err)
		}
	}
	return nil
}

// DeleteDay removes the folder of a day with everything in it: it is renamed into tmp/ at once, which a crash leaves to the next
// start. The caller knows that nothing in it is to be kept.
func (o *Owner) DeleteDay(day string) error {
	o.dropDay("")
	name := path.Join(tmpDir, "deleted-"+day)
	if err := o.root.RemoveAll(name); err != nil {
		return fmt.Errorf("delete the operations of %s: %w", day, err)
	}
	if err := o.root.Rename(path.Join(operationsDir, day), name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete the operations of %s: %w", day, err)
	}
	if err := o.opsSync.sync(); err != nil {
		return err
	}
	if err := o.root.RemoveAll(name); err != nil {
		return fmt.Errorf("delete the operations of %s: %w", day, err)
	}
	return nil
}

// dropDay removes the folder of a day that is empty, and lets go of the folders that are kept open: a name may lead to another
// folder from now on.
func (o *Owner) dropDay(day string) {
	if o.KeepDay(day) {
		return
	}
	if day != "" && o.root.Remove(path.Join(operationsDir, day)) != nil {
		return
	}
	o.daysMu.Lock()
	defer o.daysMu.Unlock()
	clear(o.days)
}

// KeepDay is a day whose folder a submit may use at any moment: today by the clock of the storage, and its neighbours, since
// other processes have clocks and zones of their own.
func (t *Tree) KeepDay(day string) bool {
	now := t.options.Now()
	for _, offset := range []int{-1, 0, 1} {
		if now.AddDate(0, 0, offset).Format(time.DateOnly) == day {
			return true
		}
	}
	return false
}

// SetAside renames a file of the storage that cannot be used to NAME.damaged, in the place of an earlier one.
func (o *Owner) SetAside(name string) error {
	return o.root.Rename(name, name+".damaged")
}
