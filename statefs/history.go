package statefs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
)

// deletedSuffix is the suffix to which a record is renamed when its operation is deleted. From that
// rename on the operation does not exist, and its remaining files are removed.
const deletedSuffix = ".deleted"

// Days returns the days that have a folder in operations/, the newest first.
func (h *operations) Days() ([]string, error) {
	entries, err := h.readFolder(operationsDir)
	if err != nil {
		return nil, fmt.Errorf("list the days of the history: %w", err)
	}
	var days []string
	for _, entry := range entries {
		if entry.IsDir() && dayPattern.MatchString(entry.Name()) {
			days = append(days, entry.Name())
		}
	}
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
func (h *operations) ListDay(day string) (DayFiles, error) {
	var files DayFiles
	folder, err := h.openFolder(path.Join(operationsDir, day))
	if errors.Is(err, fs.ErrNotExist) {
		return files, nil
	}
	if err != nil {
		return files, fmt.Errorf("list the operations of %s: %w", day, err)
	}
	defer func() { _ = folder.Close() }() // opened for reading
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return files, fmt.Errorf("list the operations of %s: %w", day, err)
	}
	names = h.commits.addUnreplayed(day, names)
	parts := make(map[ID]bool)
	for _, name := range names {
		files.add(day, name, parts)
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
func (h *operations) Footprint(rec *Record) int64 {
	var sum int64
	if record, behind := h.commits.read(rec.ID); behind {
		sum = int64(len(record)) // its file is written later
	} else {
		sum = h.sizeOf(rec.ID, ".json")
	}
	if rec.LogBytes != nil {
		sum += *rec.LogBytes
	} else {
		sum += h.sizeOf(rec.ID, ".log")
	}
	if rec.Processed > 0 || rec.FailedN > 0 || rec.RetryOf != nil {
		sum += h.sizeOf(rec.ID, itemsSuffix)
	}
	for _, name := range rec.Artifacts {
		file := ArtifactFile(name)
		if !filepath.IsLocal(file) {
			continue
		}
		if info, err := h.root.Lstat(path.Join(dayFile(rec.ID, ".artifacts"), file)); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
	}
	return sum
}

// DayInUse reports whether a submit may use the folder of a day at any moment: today by the clock
// of the storage and its neighbours, because other processes have their own clocks and time zones.
func (h *operations) DayInUse(day string) bool {
	now := h.options.Now()
	return slices.ContainsFunc([]int{-1, 0, 1}, func(offset int) bool {
		return now.AddDate(0, 0, offset).Format(time.DateOnly) == day
	})
}

// maxOpenDays bounds the day folders kept open. An operation may be written days after its submit,
// but few days are busy at once.
const maxOpenDays = 16

// operations is the folder of that name: the records and the other files of each operation, by day.
type operations struct {
	*storage
	opsSync *files.Folder
	daysMu  sync.Mutex
	days    map[string]*dayFolder // the recently used folders
}

// dayFolder is one folder of operations/.
type dayFolder struct {
	*files.Folder
	file  *os.File    // for calls that take a descriptor
	named atomic.Bool // its own name in operations/ is known to be on disk
}

// day returns the folder of a day and creates it if it is missing.
func (h *operations) day(day string) (*dayFolder, error) {
	h.daysMu.Lock()
	folder := h.days[day]
	h.daysMu.Unlock()
	if folder != nil {
		return folder, nil
	}
	if err := h.corrupt.makeFolder(path.Join(operationsDir, day)); err != nil {
		return nil, fmt.Errorf("make the folder of the day: %w", err)
	}
	h.daysMu.Lock()
	defer h.daysMu.Unlock()
	if folder := h.days[day]; folder != nil {
		return folder, nil
	}
	if len(h.days) >= maxOpenDays {
		// Other goroutines may be about to sync one of these folders, and closing it would fail
		// them. They hold a reference; the garbage collector closes each folder after its last
		// user.
		clear(h.days)
	}
	return h.openDayLocked(day)
}

// readDay returns the folder of a day for reading, nil if it does not exist or maxOpenDays folders
// are open.
func (h *operations) readDay(day string) *dayFolder {
	h.daysMu.Lock()
	defer h.daysMu.Unlock()
	folder := h.days[day]
	if folder == nil && len(h.days) < maxOpenDays {
		folder, _ = h.openDayLocked(day) // the caller falls back to the path and gets the error there
	}
	return folder
}

func (h *operations) openDayLocked(day string) (*dayFolder, error) {
	f, err := h.openFolder(path.Join(operationsDir, day)) // a Root: a symbolic link cannot lead outside
	if err != nil {
		return nil, fmt.Errorf("open the folder of the day: %w", err)
	}
	folder := &dayFolder{Folder: files.NewFolder(f, h.durable()), file: f}
	h.days[day] = folder
	return folder, nil
}

// syncDay makes the names in the folder of a day durable, and the folder's own name. It syncs
// operations/ even if another process made the folder: that process may have died before its sync.
func (h *operations) syncDay(day string) error {
	folder, err := h.day(day)
	if err != nil {
		return err
	}
	if err := folder.Sync(); err != nil || folder.named.Load() {
		return err
	}
	if err := h.opsSync.Sync(); err != nil {
		return err
	}
	folder.named.Store(true)
	return nil
}

// errReadByPath means that the record has to be opened by its path, or is no record.
var errReadByPath = errors.New("not by the folder of the day")

// readRecordFile reads the record of an operation. It uses the open folder of the day if there is
// one: most reconciles read the record, and this avoids walking the path each time. A name that is
// not a regular file is a *CorruptError; it is not followed, and the read does not block.
func (h *operations) readRecordFile(id ID) (data []byte, err error) {
	data, err = readWritten(h, id)
	if newest := h.commits.newest(id, data); len(newest) > 0 {
		return newest, nil
	}
	return data, err
}

// readWritten reads a record as it is in its file, or will be soon.
func readWritten(h *operations, id ID) (data []byte, err error) {
	if record, behind := h.commits.read(id); behind {
		return record, nil
	}
	if folder := h.readDay(id.Day()); folder != nil {
		err = files.WithDescriptor(folder.file, func(fd int) error {
			data, err = readAt(fd, id.text+".json")
			return err
		})
		if err == nil {
			return data, nil
		}
	}
	data, err = h.readRegular(dayFile(id, ".json"), recordLimit) // this call reports whatever is wrong
	if errors.Is(err, files.ErrIrregular) {
		return nil, &CorruptError{dayFile(id, ".json"), files.ErrIrregular.Error()}
	}
	return data, err
}

// ReadRecord returns the record of an operation. The error wraps fs.ErrNotExist if there is none,
// is a *CorruptError if it cannot be decoded, and wraps ErrNewerVersion if a newer version wrote
// it.
func (h *operations) ReadRecord(id ID) (*Record, error) {
	data, err := h.readRecordFile(id)
	if err != nil {
		return nil, err
	}
	return decodeRecord(dayFile(id, ".json"), id, data)
}

// terminalWords are the quoted terminal states; every terminal record contains one.
var terminalWords = func() (words [][]byte) {
	for _, state := range terminalStates {
		words = append(words, []byte(`"`+string(state)+`"`))
	}
	return words
}()

// ReadEnded returns the record of a finished operation, or nil without an error if it is still
// live. It does not decode records without a terminal state, which makes it much cheaper for a
// hundred thousand waiting operations.
func (h *operations) ReadEnded(id ID) (*Record, error) {
	data, err := h.readRecordFile(id)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(terminalWords, func(word []byte) bool { return containsValue(data, word) }) {
		return nil, nil //nolint:nilnil // documented: there is no such end
	}
	rec, err := decodeRecord(dayFile(id, ".json"), id, data)
	if err != nil || !rec.Status.Terminal() {
		return nil, err
	}
	return rec, nil
}

// containsValue reports whether JSON text contains a word other than as the name of a member.
func containsValue(data, word []byte) bool {
	for {
		i := bytes.Index(data, word)
		if i < 0 {
			return false
		}
		data = data[i+len(word):]
		if after := bytes.TrimLeft(data, " \t\r\n"); len(after) == 0 || after[0] != ':' {
			return true
		}
	}
}

// writeRecord replaces a record. While the journal is in use, its file follows.
func (h *operations) writeRecord(rec *Record) error {
	if is, err := h.commits.write(rec); is {
		return err
	}
	data, err := marshalRecord(rec)
	if err != nil {
		return fmt.Errorf("record of %s: %w", rec.ID, err)
	}
	return h.files.Replace(dayFile(rec.ID, ".json"), append(data, '\n'), false)
}

// readAt reads a regular file of at most recordLimit bytes in an open folder. It leaves the access time alone, which
// only the owner of a file may: to write that time, the first read of a new record would wait for the journal of the
// disk.
func readAt(folder int, name string) ([]byte, error) {
	fd, err := unix.Openat(folder, name, unix.O_RDONLY|unix.O_CLOEXEC|files.Nonblock|files.KeepAccessTime, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // opened for reading
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > recordLimit {
		return nil, errReadByPath
	}
	data := make([]byte, st.Size) // a record is replaced as a whole and does not grow
	for n := 0; n < len(data); {
		more, err := unix.Read(fd, data[n:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case more == 0:
			return nil, errReadByPath // another program is truncating it
		default:
			n += more
		}
	}
	return data, nil
}

// sizeOf returns the size of a regular file of an operation, 0 if there is none.
func (h *operations) sizeOf(id ID, suffix string) int64 {
	info, err := os.Lstat(filepath.Join(h.dir, dayFile(id, suffix)))
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}

// HasRecord reports whether the record of an operation exists as a regular file.
func (h *operations) HasRecord(id ID) bool {
	info, err := h.root.Lstat(dayFile(id, ".json"))
	return err == nil && info.Mode().IsRegular()
}

// hasAnyRecord reports whether something has the name of the record of an operation, in the open folder of the day if
// there is one.
func hasAnyRecord(h *operations, id ID) (exists bool, err error) {
	folder := h.readDay(id.Day())
	if folder == nil {
		_, err := h.root.Lstat(dayFile(id, ".json"))
		if files.IsMissing(err) {
			return false, nil
		}
		return err == nil, err
	}
	err = files.WithDescriptor(folder.file, func(fd int) error {
		_, exists, _, err = statAt(fd, id.text+".json")
		return err
	})
	return exists, err
}

// checkNoRecords returns an error that wraps fs.ErrExist if one of the operations has a record.
func (h *operations) checkNoRecords(recs []*Record) error {
	for _, rec := range recs {
		exists, err := hasAnyRecord(h, rec.ID)
		if exists {
			err = fs.ErrExist
		}
		if err != nil {
			return fmt.Errorf("operation %s: %w", rec.ID, err)
		}
	}
	return nil
}

// FindRecent returns the operations with this number that have a record and were submitted today or
// yesterday, local time. The storage itself gave out at most one of them. It lists two folders and
// opens no file, however long the history is.
func (h *operations) FindRecent(number uint64) ([]ID, error) {
	now := h.options.Now()
	today, err := h.findNumber(number, now.Format(time.DateOnly))
	if err != nil {
		return nil, err
	}
	yesterday, err := h.findNumber(number, now.AddDate(0, 0, -1).Format(time.DateOnly))
	return append(today, yesterday...), err
}

// FindByNumber is FindRecent, whenever the operations were submitted. It lists day folders, the newest first, until it
// has found a match.
func (h *operations) FindByNumber(number uint64) ([]ID, error) {
	days, err := h.Days()
	if err != nil {
		return nil, err
	}
	return h.findNumber(number, days...)
}

// findNumber returns the operations with a number of the first day that has one.
func (h *operations) findNumber(number uint64, days ...string) ([]ID, error) {
	for _, day := range days {
		files, err := h.ListDay(day)
		if err != nil {
			return nil, err
		}
		found := slices.DeleteFunc(files.Records, func(id ID) bool { return id.Sequence() != number })
		if len(found) > 0 {
			return found, nil
		}
	}
	return nil, nil
}

// forgetDays forgets the open folders of days that were removed or replaced, so that the next
// submit creates a new one.
func (h *operations) forgetDays() {
	h.daysMu.Lock()
	defer h.daysMu.Unlock()
	for day, folder := range h.days {
		if is, err := folder.Is(filepath.Join(h.dir, operationsDir, day)); err != nil || !is {
			delete(h.days, day) // other goroutines may still use it; the garbage collector closes it
		}
	}
}
