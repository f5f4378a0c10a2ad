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

	"github.com/jobdir/jobdir/statefs/files"
)

// deletedSuffix is the suffix to which a record is renamed when its operation is deleted. From that
// rename on the operation does not exist, and its remaining files are removed.
const deletedSuffix = ".deleted"

// reserveEnds is how many end numbers are reserved at once.
const reserveEnds = 1000

// ReserveEnds reserves a block of end numbers that were never given out before and never will be
// again, even after a crash. least is a lower bound for the first. It returns the first number and
// the one after the last. The block is on disk when it returns, whatever the durability.
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

// NextEnd returns the first unreserved end number. It reserves nothing.
func (o *Owner) NextEnd() (uint64, error) {
	info, err := o.storageInfo()
	return max(info.NextFinished, 1), err
}

var dayPattern = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)

// Days returns the days that have a folder in operations/, the newest first.
func (t *Tree) Days() ([]string, error) {
	entries, err := t.readFolder(operationsDir)
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

// DayFiles is the content of a day folder.
type DayFiles struct {
	// Records are the operations that have a record, the newest first.
	Records []ID
	// Deleted are the operations whose deletion was interrupted.
	Deleted []ID
	// Others is true if there are files of operations without a record, or of no operation.
	Others bool
}

// ListDay lists the folder of a day and opens no file in it. A missing folder counts as empty.
func (t *Tree) ListDay(day string) (DayFiles, error) {
	var files DayFiles
	folder, err := t.openFolder(path.Join(operationsDir, day))
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

// Footprint returns the total size of the files of an ended operation, in bytes. It takes sizes
// from the record where it can: each stat costs as much as a tenth of writing the record.
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
		file := ArtifactFile(name)
		if !filepath.IsLocal(file) {
			continue
		}
		if info, err := t.root.Lstat(path.Join(dayFile(rec.ID, ".artifacts"), file)); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
	}
	return sum
}

// Delete removes ended operations of one day; none may be live. One rename of its record makes each
// operation disappear as a whole. The rest only frees space: after a crash, another Delete finishes
// it.
func (o *Owner) Delete(day string, ids []ID) error {
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
		return fmt.Errorf("delete operations of %s: %w", day, err)
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
			if err := o.corrupt.clearName(name); err != nil {
				return fmt.Errorf("delete operations of %s: %w", day, err)
			}
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

// DeleteDay removes the folder of a day with all its content. It first renames the folder into
// tmp/, which the next start empties after a crash. The caller must know that nothing in it has to
// be kept.
func (o *Owner) DeleteDay(day string) error {
	o.dropDay("")
	name := path.Join(tmpDir, "deleted-"+day)
	if err := o.root.RemoveAll(name); err != nil {
		return fmt.Errorf("delete the operations of %s: %w", day, err)
	}
	if err := o.root.Rename(path.Join(operationsDir, day), name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete the operations of %s: %w", day, err)
	}
	if err := o.opsSync.Sync(); err != nil {
		return err
	}
	if err := o.root.RemoveAll(name); err != nil {
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

// DayInUse reports whether a submit may use the folder of a day at any moment: today by the clock
// of the storage and its neighbours, because other processes have their own clocks and time zones.
func (t *Tree) DayInUse(day string) bool {
	now := t.options.Now()
	for _, offset := range []int{-1, 0, 1} {
		if now.AddDate(0, 0, offset).Format(time.DateOnly) == day {
			return true
		}
	}
	return false
}

// RenameDamaged renames an unusable file of the storage to NAME.damaged, replacing an earlier one.
func (o *Owner) RenameDamaged(name string) error {
	return o.root.Rename(name, name+".damaged")
}
