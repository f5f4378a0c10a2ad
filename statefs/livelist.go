package statefs

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
)

// cachedList is a list of names in a file that is only appended to: "+NAME" when one begins, "-NAME" when it ended. It
// is never synced, and a start without it only notices less.
type cachedList struct {
	*storage
	name string
	mu   sync.Mutex // guards the fields below
	f    *os.File
	// owned means that no other process rewrites the list. Without it, every write checks whether the file was replaced.
	owned bool
	// waits reports whether lines may wait for listDelay, so that one write takes many; nil for never. pending are the
	// lines that wait.
	waits   func() bool
	pending []byte
}

// listDelay is how long a line of a cached list may wait.
const listDelay = 100 * time.Millisecond

// listLimit is the size in bytes from which a cached list is rewritten without what has ended.
const listLimit = 1 << 20

// listLines returns one line for each name.
func listLines[N fmt.Stringer](sign byte, names iter.Seq[N]) (lines []byte) {
	for name := range names {
		lines = append(append(append(lines, sign), name.String()...), '\n')
	}
	return lines
}

// write appends lines with one write, so that lines of several processes do not mix. It ignores
// errors: the list is a cache, and the other writes of the operation report a full disk.
func (l *cachedList) write(lines []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waits != nil && l.waits() {
		if len(l.pending) == 0 {
			time.AfterFunc(listDelay, l.flush)
		}
		l.pending = append(l.pending, lines...)
		return
	}
	l.flushLocked()
	l.writeLocked(lines)
}

// flush writes the lines that wait.
func (l *cachedList) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushLocked()
}

func (l *cachedList) flushLocked() {
	if len(l.pending) > 0 {
		l.writeLocked(l.pending)
		l.pending = nil
	}
}

func (l *cachedList) writeLocked(lines []byte) {
	if !l.owned {
		l.reopen()
	}
	if l.f == nil {
		f, err := files.OpenFile(filepath.Join(l.dir, l.name), os.O_WRONLY|os.O_APPEND|os.O_CREATE)
		if err != nil {
			return
		}
		l.f = f
	}
	_, _ = l.f.Write(lines)
}

// setOwned sets whether this process holds the lock of the storage.
func (l *cachedList) setOwned(owned bool) {
	l.mu.Lock()
	l.flushLocked()
	l.owned = owned
	l.mu.Unlock()
}

// reopen closes a list file that was replaced: a starting daemon rewrites the list while other
// processes have the old file open. The caller holds mu.
func (l *cachedList) reopen() {
	if l.f != nil && !files.IsNamed(l.f, filepath.Join(l.dir, l.name)) {
		_ = l.closeLocked() // each line was one write, so nothing is buffered
	}
}

func (l *cachedList) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushLocked()
	return l.closeLocked()
}

func (l *cachedList) closeLocked() error {
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}

// scan calls note for each line, with its sign. It skips damaged lines of any length: a power cut can leave blocks of
// zero bytes, and a line may follow an incomplete one without a newline; no name contains a plus sign.
func (l *cachedList) scan(note func(sign byte, name string)) error {
	f, _, err := l.openRegular(l.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", l.name, err)
	}
	defer func() { _ = f.Close() }() // opened for reading
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadSlice('\n')
		line = bytes.TrimSuffix(line, []byte("\n"))
		line = line[bytes.LastIndexByte(line, 0)+1:]
		line = line[max(0, bytes.LastIndexByte(line, '+')):]
		if len(line) > 0 {
			note(line[0], string(line[1:]))
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read %s: %w", l.name, err)
		}
	}
}

// rewrite replaces the list. Other writes of this process wait.
func (l *cachedList) rewrite(lines func() ([]byte, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rewriteLocked(lines)
}

func (l *cachedList) rewriteLocked(lines func() ([]byte, error)) error {
	l.flushLocked()
	data, err := lines()
	if err != nil {
		return err
	}
	if err := l.closeLocked(); err != nil {
		return fmt.Errorf("rewrite %s: %w", l.name, err)
	}
	return l.files.ReplaceUnsynced(l.name, data)
}

// trimLocked rewrites the list once it exceeds listLimit; without a file there is nothing to trim.
func (l *cachedList) trimLocked(lines func() ([]byte, error)) error {
	info, err := l.root.Lstat(l.name)
	if err != nil || info.Size() < listLimit {
		return nil //nolint:nilerr // without a list there is nothing to trim
	}
	return l.rewriteLocked(lines)
}

// liveFile is the cached list of live IDs: "+ID" once the marker of a submit is durable, "-ID" once
// the operation ended. With it, a start finds a record whose marker was removed while no daemon
// ran, without reading the history. A record whose marker was never created is not listed, so no
// start cancels such an operation. In the worst case a power cut hides a marker that a person
// removed at the same moment.
//
// While the journal is in use, the lines wait for a moment: a start adds each operation that has a line in the journal
// behind the last checkpoint, and a checkpoint writes the lines before it.
const liveFile = "live.list"

// LiveList is the cached list of live IDs.
type LiveList struct{ cachedList }

func (l *LiveList) remove(id ID) { l.write(listLines('-', slices.Values([]ID{id}))) }

// Add appends IDs.
func (l *LiveList) Add(ids ...ID) { l.write(listLines('+', slices.Values(ids))) }

// IDs returns the IDs of the cached list that did not end.
func (l *LiveList) IDs() (map[ID]bool, error) {
	l.flush()
	return l.readIDs()
}

func (l *LiveList) readIDs() (map[ID]bool, error) {
	live := make(map[ID]bool)
	err := l.scanIDs(func(id ID, begins bool) {
		if begins {
			live[id] = true
		} else {
			delete(live, id)
		}
	})
	return live, err
}

// scanIDs calls note for each line with an ID.
func (l *LiveList) scanIDs(note func(id ID, begins bool)) error {
	return l.scan(func(sign byte, name string) {
		if id, err := ParseID(name); err == nil && (sign == '+' || sign == '-') {
			note(id, sign == '+')
		}
	})
}

// Trim rewrites the cached list once it exceeds listLimit. If the file was removed, it
// closes the old one and the next write creates a new one.
func (l *LiveList) Trim() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reopen()
	return l.trimLocked(func() ([]byte, error) {
		live, err := l.readIDs()
		return listLines('+', maps.Keys(live)), err
	})
}

// Set rewrites the cached list to the operations that are live now.
func (l *LiveList) Set(live map[ID]bool) error {
	return l.rewrite(func() ([]byte, error) { return listLines('+', maps.Keys(live)), nil })
}

// Listed returns every ID in the cached list, including ended ones, and false if there is no
// list.
func (l *LiveList) Listed() (ids map[ID]bool, there bool, err error) {
	l.flush()
	if _, err := l.root.Lstat(liveFile); errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	ids = make(map[ID]bool)
	err = l.scanIDs(func(id ID, _ bool) { ids[id] = true })
	return ids, true, err
}

// recordsFile has copies of records, so that a start with many waiting operations reads one file instead of the record
// of each. A line is "CRC ID INODE CHANGED SIZE RECORD": the identity of the record file, and its content without the
// line end. A copy counts only while the record file is the same one: whatever replaces or changes that file gives it
// another inode or another time of change, which no program can set. So the list needs no sync and no order with other
// writes, and an older version, another way to commit, a person or a copy of the storage cannot make it wrong.
const recordsFile = "records.list"

// RecordList has copies of the records of operations that only wait.
type RecordList struct {
	cachedList

	operations *operations
	live       *LiveList
	rows       atomic.Pointer[recordRows] // during a start

	pendingMu sync.Mutex // guards the fields below; taken before mu
	pending   []byte     // rows that are not written yet
	lines     int        // how many lines the file and pending have
}

// recordRows are the rows of the file at the beginning of a start.
type recordRows struct {
	f    *os.File
	last map[ID]span // the last row of each operation
}

type span struct{ at, size int64 }

// fileVersion identifies the content of a file: all of it changes when another file gets the name, and changed with
// each write.
type fileVersion struct {
	inode   uint64
	changed time.Time // the inode's time of change
	size    int64
}

const (
	pendingRows = 64 << 10 // written at once; what is not written yet is read from its record after a crash
	maxRow      = 32 << 10 // a longer record is always read from its file
	// settledAge is how old the last change of a record file must be when it is read for a row. Two changes within one
	// tick of the kernel's clock have the same time.
	settledAge = time.Second
)

var rowSums = crc32.MakeTable(crc32.Castagnoli)

// formatRow returns a row with a line end, nil if the record cannot be in one.
func formatRow(id ID, v fileVersion, record []byte) []byte {
	record = bytes.TrimSuffix(record, []byte("\n"))
	if len(record) > maxRow || bytes.IndexByte(record, '\n') >= 0 {
		return nil
	}
	row := make([]byte, 8, len(record)+192)
	row = fmt.Appendf(row, " %s %d %d %d ", id, v.inode, v.changed.UnixNano(), v.size)
	row = append(row, record...)
	copy(row, fmt.Sprintf("%08x", crc32.Checksum(row[8:], rowSums)))
	return append(row, '\n')
}

// parseRow returns the record of a row, nil if the row is damaged or of another version of the file.
func parseRow(row []byte, id ID, v fileVersion) []byte {
	if len(row) < 8 {
		return nil
	}
	sum, err := strconv.ParseUint(string(row[:8]), 16, 32)
	if err != nil || uint32(sum) != crc32.Checksum(row[8:], rowSums) {
		return nil
	}
	record, is := bytes.CutPrefix(row[8:], fmt.Appendf(nil, " %s %d %d %d ", id, v.inode, v.changed.UnixNano(), v.size))
	if !is {
		return nil
	}
	return record
}

// versionOf returns the version of the record file of an operation.
func (l *RecordList) versionOf(id ID) (v fileVersion, ok bool) {
	folder := l.operations.readDay(id.Day())
	if folder == nil {
		return v, false
	}
	var st unix.Stat_t
	err := files.WithDescriptor(folder.file, func(fd int) error {
		return unix.Fstatat(fd, id.text+".json", &st, unix.AT_SYMLINK_NOFOLLOW)
	})
	v = fileVersion{inode: st.Ino, changed: time.Unix(st.Ctim.Unix()), size: st.Size}
	return v, err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// noteWritten adds the record that was just written to the file of an operation, if the operation only waits.
func (l *RecordList) noteWritten(id ID, record []byte) {
	if !onlyWaits(statusIn(record)) {
		return
	}
	if v, ok := l.versionOf(id); ok && v.size == int64(len(record)) {
		l.add(formatRow(id, v, record))
	}
}

// statusIn returns the state in a record that this version has written. If another member looks like it, the state is
// wrong, which only decides whether the record has a row.
func statusIn(record []byte) State {
	_, after, _ := bytes.Cut(record, []byte(`"status":"`))
	status, _, _ := bytes.Cut(after, []byte(`"`))
	return State(status)
}

// onlyWaits reports whether the daemon keeps no record in memory for an operation in a state, without which a start
// reads many records.
func onlyWaits(s State) bool { return s.Live() && s != Running && s != Trailing }

func (l *RecordList) add(row []byte) {
	if row == nil {
		return
	}
	l.pendingMu.Lock()
	defer l.pendingMu.Unlock()
	l.pending = append(l.pending, row...)
	l.lines++
	if len(l.pending) >= pendingRows {
		l.flushLocked()
	}
}

func (l *RecordList) flushLocked() {
	if len(l.pending) > 0 {
		l.write(l.pending)
	}
	l.pending = l.pending[:0]
}

func (l *RecordList) close() error {
	l.EndStart()
	l.pendingMu.Lock()
	l.flushLocked()
	l.pendingMu.Unlock()
	return l.cachedList.close()
}

// BeginStart makes [Owner.ReadPublished] take records from the list until EndStart. After an error, which is about the
// list, each record is read from its file.
func (l *RecordList) BeginStart() error {
	rows, lines, err := l.index()
	l.pendingMu.Lock()
	l.lines += lines
	l.pendingMu.Unlock()
	l.rows.Store(rows)
	return err
}

// EndStart frees what BeginStart has read. It may be called more than once.
func (l *RecordList) EndStart() {
	if rows := l.rows.Swap(nil); rows != nil && rows.f != nil {
		_ = rows.f.Close() // opened for reading
	}
}

// index finds the rows of the file. The result is never nil.
func (l *RecordList) index() (rows *recordRows, lines int, err error) {
	rows = &recordRows{last: make(map[ID]span)}
	f, _, err := l.openRegular(l.name)
	if errors.Is(err, fs.ErrNotExist) {
		return rows, 0, nil
	}
	if err != nil {
		return rows, 0, fmt.Errorf("read %s: %w", l.name, err)
	}
	rows.f = f
	in, at := bufio.NewReaderSize(f, 2*maxRow), int64(0)
	for {
		row, err := in.ReadSlice('\n')
		if id, is := idOfRow(row); is && err == nil {
			rows.last[id] = span{at, int64(len(row)) - 1}
			lines++
		}
		at += int64(len(row))
		switch {
		case errors.Is(err, io.EOF):
			return rows, lines, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return rows, lines, fmt.Errorf("read %s: %w", l.name, err)
		}
	}
}

func idOfRow(row []byte) (id ID, is bool) {
	_, after, _ := bytes.Cut(row, []byte(" "))
	text, _, _ := bytes.Cut(after, []byte(" "))
	id, err := ParseID(string(text))
	return id, err == nil
}

// read returns the record of an operation that a start takes over.
func (l *RecordList) read(id ID) (*Record, error) {
	rows := l.rows.Load()
	if _, behind := l.commits.read(id); behind || rows == nil {
		return l.operations.ReadRecord(id)
	}
	v, ok := l.versionOf(id) // first: what is read later is this version or a newer one
	if record := rows.find(id, v); ok && record != nil {
		if rec, err := decodeRecord(dayFile(id, ".json"), id, record); err == nil {
			return rec, nil
		}
	}
	data, err := l.operations.readRecordFile(id)
	if err != nil {
		return nil, err
	}
	rec, err := decodeRecord(dayFile(id, ".json"), id, data)
	if err == nil && ok && onlyWaits(rec.Status) && time.Since(v.changed).Abs() > settledAge {
		l.add(formatRow(id, v, data))
	}
	return rec, err
}

// find returns the record of an operation whose file has a version, nil if there is no row of it.
func (r *recordRows) find(id ID, v fileVersion) []byte {
	where, has := r.last[id]
	if !has {
		return nil
	}
	row := make([]byte, where.size)
	if _, err := r.f.ReadAt(row, where.at); err != nil {
		return nil
	}
	return parseRow(row, id, v)
}

// Trim writes the list anew, with the last row of each live operation, once it has three times as many lines. If it
// cannot, as on a full disk, it removes the list.
func (l *RecordList) Trim() error {
	info, err := l.root.Lstat(l.name)
	if err != nil || info.Size() < listLimit {
		return nil // without a list there is nothing to trim
	}
	live, err := l.live.IDs()
	if err != nil {
		return err
	}
	l.pendingMu.Lock()
	defer l.pendingMu.Unlock()
	if l.lines <= 3*len(live) {
		return nil
	}
	l.flushLocked()
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.closeLocked() // each write was whole lines
	if l.lines, err = l.replaceLocked(live); err != nil {
		l.lines = 0
		return errors.Join(fmt.Errorf("trim %s: %w", l.name, err), l.root.Remove(l.name))
	}
	return nil
}

// replaceLocked replaces the file by one with the last rows of live operations. It is not synced: see recordsFile.
func (l *RecordList) replaceLocked(live map[ID]bool) (lines int, err error) {
	rows, _, err := l.index()
	if err != nil {
		return 0, err
	}
	if rows.f == nil {
		return 0, nil
	}
	defer func() { _ = rows.f.Close() }() // opened for reading
	maps.DeleteFunc(rows.last, func(id ID, _ span) bool { return !live[id] })
	temp := path.Join(tmpDir, recordsFile)
	to, err := l.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, files.Mode)
	if err != nil {
		return 0, err
	}
	out := bufio.NewWriterSize(to, pendingRows)
	inOrder := slices.SortedFunc(maps.Values(rows.last), func(a, b span) int { return cmp.Compare(a.at, b.at) })
	for _, row := range inOrder {
		if _, err = io.Copy(out, io.NewSectionReader(rows.f, row.at, row.size+1)); err != nil {
			break
		}
	}
	if err = errors.Join(err, out.Flush(), to.Close()); err == nil {
		err = l.root.Rename(temp, l.name)
	}
	if err != nil {
		return 0, errors.Join(err, l.root.Remove(temp))
	}
	return len(inOrder), nil
}
