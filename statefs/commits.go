package statefs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jobdir/jobdir/statefs/commit"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/journal"
)

const journalDir = "journal"

// CommitMethod is how an owner makes changes of operations durable.
type CommitMethod string

const (
	// CommitJournal writes each change to the journal, and the files of the operation behind it. It is the default.
	CommitJournal CommitMethod = "journal"
	// CommitFiles writes and syncs the files of each operation. It stays for one release.
	CommitFiles CommitMethod = "files"
)

// CommitOptions are the options of an owner about its changes. A process that only reads needs none.
type CommitOptions struct {
	// Method is CommitJournal when empty. It has an effect on Journal.Use only.
	Method CommitMethod
	// SegmentSize is the size of a file of the journal in bytes; 0 means 16 MiB, and the least is 128 KiB.
	SegmentSize int64
	// WithoutJournal takes over a storage whose journal is lost or damaged: what its files say counts.
	WithoutJournal bool
	// Repair makes Own take over a storage whose journal is damaged: it replays what is in front of the damage, and calls
	// Repair with the rest. A start refuses such a storage if it is nil.
	Repair func(JournalRepair)
}

func (c CommitOptions) check() error {
	switch c.Method {
	case "", CommitJournal, CommitFiles:
		return nil
	}
	return fmt.Errorf("commit %q is not known: use %q or %q", c.Method, CommitJournal, CommitFiles)
}

// commits is what the parts of a storage know of its journal. The zero value of log means that changes are committed by
// the files of each operation.
type commits struct {
	dir string // of the storage
	log atomic.Pointer[commit.Log]
	// opened is the number of the first line of this use of the journal. It is set before log.
	opened uint64

	// owned reports whether this process owns the storage, and left whether the journal has what files may lack.
	owned, left func() bool

	mu   sync.Mutex         // guards last
	last map[ID]journalLine // what a crash has left in the journal; nil until it was read
}

// journalLine is a line of the journal.
type journalLine struct {
	number uint64
	text   []byte
}

// wait waits until all changes of an operation are durable in the journal, if it is in use.
func (c *commits) wait(id ID) error {
	if log := c.log.Load(); log != nil {
		return log.Wait(id.text)
	}
	return nil
}

// seen notes that the marker of an operation is that of its last change.
func (c *commits) seen(id ID) {
	if log := c.log.Load(); log != nil {
		log.Seen(id.text)
	}
}

// write appends a record to the journal, and returns false if that is not in use.
func (c *commits) write(rec *Record) (is bool, err error) {
	log := c.log.Load()
	if log == nil {
		return false, nil
	}
	change, err := changeOf(rec)
	if err != nil {
		return true, err
	}
	change.MovesMarker = !rec.Status.Terminal() || rec.Trailing
	rec.LSN = log.Append(change)
	return true, nil
}

// changeOf returns the change to a record.
func changeOf(rec *Record) (commit.Change, error) {
	unnumbered := *rec
	unnumbered.LSN = 0 // the journal adds it
	data, err := marshalRecord(&unnumbered)
	if err != nil {
		return commit.Change{}, fmt.Errorf("record of %s: %w", rec.ID, err)
	}
	return commit.Change{ID: rec.ID.text, Record: data, HasEnded: rec.Status.Terminal()}, nil
}

// read returns the record of an operation whose file is behind the journal.
func (c *commits) read(id ID) (record []byte, behind bool) {
	if log := c.log.Load(); log != nil {
		return log.Read(id.text)
	}
	return nil, false
}

// full returns why submits are refused for the journal or the files behind it, "" if they are not.
func (c *commits) full() string {
	log := c.log.Load()
	if log == nil {
		return ""
	}
	s := log.Status()
	if err := cmp.Or(s.Unwritten, s.Lack); files.DiskFull(err) {
		return "the disk was full a moment ago: " + err.Error()
	} else if err != nil {
		return err.Error()
	}
	return ""
}

// forget commits that operations are deleted, so that no replay writes their records again.
func (c *commits) forget(ids []ID) error {
	log := c.log.Load()
	if log == nil {
		return nil
	}
	changes := make([]commit.Change, len(ids))
	for i, id := range ids {
		changes[i].ID = id.text
	}
	log.Append(changes...)
	for _, id := range ids {
		if err := log.Wait(id.text); err != nil {
			return err
		}
		log.AwaitWriter(id.text)
	}
	return nil
}

// forgetDay is forget for all operations of a day.
func (c *commits) forgetDay(day string) error {
	if log := c.log.Load(); log != nil {
		return log.Forget(fmt.Appendf(nil, `{"deleted_day":%q}`, day), func(text string) bool {
			id, err := ParseID(text)
			return err == nil && id.Day() == day
		})
	}
	return nil
}

// newest returns the newer one of the file of a record and what a crash has left in the journal alone. So a process
// without the lock tells the truth before the next owner has replayed the journal.
func (c *commits) newest(id ID, file []byte) []byte {
	if c.owned() {
		return file // the journal is replayed
	}
	last := c.unreplayed()
	var there struct {
		LSN uint64 `json:"lsn"`
	}
	if l := last[id]; l.text != nil && (json.Unmarshal(file, &there) != nil || there.LSN < l.number) {
		return l.text
	}
	return file
}

// unreplayed returns the last line of each operation if a crash has left the journal. It reads that once.
func (c *commits) unreplayed() map[ID]journalLine {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, held := readLock(filepath.Join(c.dir, lockFile)); held || c.last == nil && !c.left() {
		return nil // a daemon keeps the files up to date, or has stopped in order
	}
	if c.last == nil {
		c.last = c.readUnreplayed()
	}
	return c.last
}

// addUnreplayed adds the names of the records of a day that a crash has left in the journal alone.
func (c *commits) addUnreplayed(day string, names []string) []string {
	if c.owned() {
		return names
	}
	for id := range c.unreplayed() {
		if name := id.text + ".json"; id.Day() == day && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// readUnreplayed returns the last line of each operation, with a line end. A damaged journal is read up to the damage,
// which the next owner reports.
func (c *commits) readUnreplayed() map[ID]journalLine {
	last := make(map[ID]journalLine)
	reader, err := readJournal(filepath.Join(c.dir, journalDir), func(l journalLine) {
		var e struct {
			ID      ID     `json:"id"`
			Deleted ID     `json:"deleted"`
			Day     string `json:"deleted_day"`
		}
		if json.Unmarshal(l.text, &e) != nil {
			return
		}
		delete(last, e.Deleted)
		maps.DeleteFunc(last, func(id ID, _ journalLine) bool { return id.Day() == e.Day })
		if e.ID != (ID{}) {
			last[e.ID] = journalLine{l.number, append(slices.Clip(l.text), '\n')}
		}
	})
	if reader != nil {
		_ = reader.Close() // opened for reading
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a daemon has begun to use the segments again
	}
	return last
}

// readJournal reads a journal, and calls note with each line. With a *journal.DamageError it returns the Reader too.
func readJournal(dir string, note func(journalLine)) (*journal.Reader, error) {
	reader, err := journal.NewReader(dir)
	if err != nil {
		return nil, err
	}
	for frame, err := range reader.Frames() {
		if _, damaged := errors.AsType[*journal.DamageError](err); damaged {
			return reader, err
		}
		if err != nil {
			return nil, errors.Join(err, reader.Close())
		}
		for _, l := range linesOf(frame) {
			note(l)
		}
	}
	return reader, nil
}

// linesOf returns the lines of a frame.
func linesOf(frame *journal.Frame) (lines []journalLine) {
	for i, line := range frame.Entries {
		lines = append(lines, journalLine{frame.First + uint64(i), line})
	}
	return lines
}

// Committed is a line of the journal for a follower: the record of an operation that has ended or has stopped for a
// person, at some time, or a deletion.
type Committed struct {
	LSN     uint64
	Record  *Record // nil for a deletion
	Deleted ID      // zero unless the line deleted one operation
	Day     string  // that was deleted with all its operations; "" for none
}

// ErrNotFollowed is wrapped by the error of Since if the journal does not have what a follower lacks.
var ErrNotFollowed = errors.New("the journal does not go on there")

// JournalRepair is what the repair of a damaged journal has found and done.
type JournalRepair struct {
	// Damage is the place and the kind of the damage.
	Damage *journal.DamageError
	// Moved are the segments that are now in corrupt/: the damaged one and those behind it.
	Moved []string
	// Last is the number of the last change in front of the damage. The files have it and all before.
	Last uint64
	// Unsure are the operations with readable changes behind the damage, in the order of these. There may be others whose
	// changes cannot be read.
	Unsure []UnsureOperation
}

// UnsureOperation is an operation with a change behind the damage of a journal.
type UnsureOperation struct {
	ID ID `json:"id"`
	// LSN is the number of the last change that can be read, and Status the state after it; "" if it was deleted.
	LSN    uint64 `json:"lsn"`
	Status State  `json:"status,omitempty"`
	// Has reports that the record file has this change, or a later one.
	Has bool `json:"in_record"`
}

// JournalLostError reports that a storage lacks its journal, or a part of it, and that it was not stopped in order.
type JournalLostError struct{ Dir, Reason string }

func (e *JournalLostError) Error() string {
	return fmt.Sprintf("the journal %s %s, and the daemon was not stopped in order: changes that were answered since the "+
		"last checkpoint may be lost; put the journal back, or start once with --without-journal to go on with what the "+
		"files of the operations say", e.Dir, e.Reason)
}
