package commit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs/journal"
	"github.com/jobdir/jobdir/statefs/notify"
)

// Options are the settings of a Log.
type Options struct {
	// Journal are the settings of the journal. Its Committed must be nil.
	Journal journal.Options
	// Write writes the file of a record without a sync; isNew means that the operation had none when it was submitted.
	// It is called for durable lines only, by several goroutines, by one at a time for each operation.
	Write func(id string, record []byte, isNew bool) error
	// Sync makes durable what Write wrote for some operations, and the names of all markers.
	Sync func(ids []string) error
	// Followed returns up to which line, at most the given one, the follower of the journal has every change. Each
	// checkpoint calls it, and goes no further. May be nil.
	Followed func(ctx context.Context, upTo uint64) uint64
	// Retryable reports whether an error of Write may go away by itself, as that of a full disk. Others end Run.
	Retryable func(error) bool
	// Unwritten are the last lines of operations whose files could not be written by a start on a full disk. They are
	// written when there is room. With them, no line counts as written that a checkpoint does not cover.
	Unwritten []Line
	// Delay is how long a record file may be behind its line. The default is 100 ms.
	Delay time.Duration
	// Interval is the time between two checkpoints. The default is 5 s.
	Interval time.Duration
}

const (
	defaultDelay    = 100 * time.Millisecond
	defaultInterval = 5 * time.Second
	// writers is how many record files are written at the same time.
	writers = 2
	// maxLate is how far record files may be behind their time before submits wait for them.
	maxLate = time.Second
	// retryAfter is the time between two tries to write a record file.
	retryAfter = time.Second
)

// Change is a change of one operation.
type Change struct {
	ID string
	// Record is the record after the change, a JSON object without a member "lsn"; nil if the operation was deleted.
	Record []byte
	// IsNew means that no file of the record exists.
	IsNew bool
	// HasEnded means that no further change is expected soon: the record file is due at once.
	HasEnded bool
	// MovesMarker means that the marker has to be made, moved or removed after the change: Seen tells when.
	MovesMarker bool
}

// Line is a line that the journal has already.
type Line struct {
	ID     string
	Number uint64
	Text   []byte // without a line end
}

// Log appends changes to the journal and writes the record files behind it. Its methods are safe for concurrent use.
type Log struct {
	o       Options
	journal *journal.Journal
	due     chan struct{}   // wakes a writer
	changed chan struct{}   // has a value if there was a change since the last checkpoint
	full    chan struct{}   // has a value if half of the journal waits for a checkpoint
	life    context.Context //nolint:containedctx // ends when err is set, for waits that have no context of their own
	end     context.CancelFunc

	mu     sync.Mutex // guards the fields below
	wrote  *sync.Cond // told after each file
	states map[string]*state
	queue  []due    // of states, in the order of their times
	urgent []string // of states, before those in queue
	unseen []mark   // in the order of their numbers, also those seen since
	last   uint64   // number of the last line
	// touched are the operations whose files were written since the last checkpoint.
	touched map[string]bool
	flush   flush
	lacks   map[string]error // why a record file could not be written, by operation
	err     error            // why nothing can be committed any more; the first reason
	onTime  chan struct{}    // closed when record files are no longer late; nil if no call waits
}

// state is what is known of an operation that has something which is not durable, not seen or not written yet.
type state struct {
	number  uint64 // of its last line
	commit  *journal.Commit
	record  []byte // of the last line, for its file; nil once the file has it
	isNew   bool
	behind  uint64 // number of the first line that its file lacks; 0 for none
	unseen  uint64 // number of the first line whose marker is not seen; 0 for none
	queued  bool
	urgent  bool
	writing bool
}

// due is when the file of an operation has to be written.
type due struct {
	id string
	at time.Time
}

// mark is a line whose marker has to be seen.
type mark struct {
	number uint64
	state  *state
}

// flush is a wait until the files have all lines up to a number.
type flush struct {
	to   uint64
	left int           // operations that are behind
	done chan struct{} // closed when none is left, or one cannot be written
}

// Open continues the journal behind the frames that r has returned. after is the number of the last line ever: the
// files have everything up to it.
func Open(r *journal.Reader, after uint64, o Options) (*Log, error) {
	if o.Delay == 0 {
		o.Delay = defaultDelay
	}
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	if o.Journal.MaxSegments == 0 {
		o.Journal.MaxSegments = 8
	}
	l := &Log{
		o: o, due: make(chan struct{}, 1), changed: make(chan struct{}, 1), full: make(chan struct{}, 1),
		states: make(map[string]*state), touched: make(map[string]bool), lacks: make(map[string]error),
	}
	l.life, l.end = context.WithCancel(context.Background())
	l.wrote = sync.NewCond(&l.mu)
	o.Journal.Committed = l.committed
	var err error
	if l.journal, err = journal.Open(r, after, o.Journal); err != nil {
		return nil, err
	}
	l.last = l.journal.Next() - 1
	for _, line := range o.Unwritten {
		s := &state{number: line.Number, record: slices.Concat(line.Text, []byte{'\n'}), behind: line.Number, queued: true}
		l.states[line.ID] = s
		l.queue = append(l.queue, due{line.ID, time.Now()})
	}
	if len(o.Unwritten) == 0 {
		l.journal.Checkpoint(after)
	}
	return l, nil
}

// Append commits changes in one frame: all or none of them survive a crash. It waits for nothing and returns the number
// of the first line. See Wait.
func (l *Log) Append(changes ...Change) (first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.journal.Next()
	lines := make([][]byte, len(changes))
	for i, c := range changes {
		lines[i] = line(c, first+uint64(i))
	}
	commit := l.journal.Append(lines...)
	for i, c := range changes {
		l.noteLocked(c, first+uint64(i), lines[i], commit)
	}
	l.last = first + uint64(len(changes)) - 1
	notify.Wake(l.due)
	notify.Wake(l.changed)
	return first
}

// line returns the line of a change.
func line(c Change, number uint64) []byte {
	if c.Record == nil {
		return fmt.Appendf(nil, `{"deleted":%q,"lsn":%d}`, c.ID, number)
	}
	data := make([]byte, 0, len(c.Record)+32)
	data = append(append(data, c.Record[:len(c.Record)-1]...), `,"lsn":`...)
	return append(strconv.AppendUint(data, number, 10), '}')
}

func (l *Log) noteLocked(c Change, number uint64, line []byte, commit *journal.Commit) {
	s := l.states[c.ID]
	if s == nil {
		s = new(state)
		l.states[c.ID] = s
	}
	s.number, s.commit = number, commit
	if c.Record == nil {
		l.forgetLocked(c.ID, s)
		return
	}
	s.record, s.isNew = slices.Concat(line, []byte{'\n'}), s.isNew || c.IsNew
	if s.behind == 0 {
		s.behind = number
	}
	if c.MovesMarker && s.unseen == 0 {
		s.unseen = number
		l.unseen = append(l.unseen, mark{number, s})
	}
	switch {
	case c.HasEnded && !s.urgent && !s.writing:
		s.urgent = true
		l.urgent = append(l.urgent, c.ID)
	case !s.queued && !s.urgent:
		s.queued = true
		l.queue = append(l.queue, due{c.ID, time.Now().Add(l.o.Delay)})
	}
}

// forgetLocked gives up what the file and the marker of a deleted operation lack.
func (l *Log) forgetLocked(id string, s *state) {
	s.record, s.unseen = nil, 0
	l.setBehindLocked(s, 0)
	delete(l.lacks, id)
}

// Forget commits a line that says that operations were deleted, those for which is returns true, and waits until it is
// durable. Afterwards no file of them is written.
func (l *Log) Forget(line []byte, is func(id string) bool) error {
	l.mu.Lock()
	commit := l.journal.Append(line)
	l.last = l.journal.Next() - 1
	var forgotten []string
	for id, s := range l.states {
		if is(id) {
			l.forgetLocked(id, s)
			forgotten = append(forgotten, id)
		}
	}
	l.mu.Unlock()
	<-commit.Done()
	for _, id := range forgotten {
		l.AwaitWriter(id)
	}
	return commit.Err()
}

// committed is called after each frame.
func (l *Log) committed(uint64) {
	if s := l.journal.Status(); 2*s.Full >= l.o.Journal.MaxSegments {
		notify.Wake(l.full)
	}
}

// Note commits a line that is no change of an operation, and waits until it is durable.
func (l *Log) Note(line []byte) error {
	l.mu.Lock()
	commit := l.journal.Append(line)
	l.last = l.journal.Next() - 1
	l.mu.Unlock()
	<-commit.Done()
	return commit.Err()
}

// Broken is closed when nothing can be committed any more. Run returns why.
func (l *Log) Broken() <-chan struct{} { return l.life.Done() }

// AwaitWriter waits until no file of an operation is being written.
func (l *Log) AwaitWriter(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := l.states[id]; s != nil && s.writing; s = l.states[id] {
		l.wrote.Wait()
	}
}

// Wait waits until all lines of an operation are durable. If the journal has failed, it returns why.
func (l *Log) Wait(id string) error {
	l.mu.Lock()
	s, err := l.states[id], l.err
	var commit *journal.Commit
	if s != nil {
		commit = s.commit
	}
	l.mu.Unlock()
	if commit == nil || err != nil {
		return err
	}
	<-commit.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.states[id]; s != nil {
		l.dropLocked(id, s)
	}
	return commit.Err()
}

// Seen says that the marker of an operation is that of its last line.
func (l *Log) Seen(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.states[id]
	if s == nil || s.unseen == 0 {
		return
	}
	s.unseen = 0
	l.dropLocked(id, s)
	l.journal.Viewed(l.viewedLocked())
}

// viewedLocked returns the number of the last line up to which all markers are seen.
func (l *Log) viewedLocked() uint64 {
	for len(l.unseen) > 0 && l.unseen[0].state.unseen != l.unseen[0].number {
		l.unseen = l.unseen[1:]
	}
	if len(l.unseen) > 0 {
		return l.unseen[0].number - 1
	}
	return l.last
}

// Read returns the record of an operation whose file is behind. The bytes must not be changed.
func (l *Log) Read(id string) (record []byte, behind bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.states[id]
	if s == nil || s.record == nil {
		return nil, false
	}
	return s.record, true
}

// Room waits until there is room for size bytes in the journal, and until record files are at most a second late, or
// until nothing can be committed any more. It is for changes that may be refused. The error is that of the disk if it
// is full.
func (l *Log) Room(size int64) error {
	if err := l.journal.Room(l.life, size); err != nil {
		return err
	}
	for {
		l.mu.Lock()
		lack, err := anyOf(l.lacks), l.err
		late := len(l.queue) > 0 && time.Since(l.queue[0].at) > maxLate
		if late && l.onTime == nil {
			l.onTime = make(chan struct{})
		}
		onTime := l.onTime
		l.mu.Unlock()
		switch {
		case err != nil:
			return err
		case lack != nil:
			return lack
		case !late:
			return nil
		}
		<-onTime
	}
}

// Status describes a Log for people.
type Status struct {
	journal.Status
	// Behind is how many operations have a record file that is behind.
	Behind int
	// Unwritten is why a record file could not be written; nil if the last one could.
	Unwritten error
}

// Status returns the present state.
func (l *Log) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Status{l.journal.Status(), len(l.states), anyOf(l.lacks)}
}

// anyOf returns why a record file could not be written, nil if all could.
func anyOf(lacks map[string]error) error {
	for _, why := range lacks {
		return why
	}
	return nil
}

// ErrBehind is the error of Run if the files do not have everything that the journal has.
var ErrBehind = errors.New("record files are behind the journal; the next start writes them")

// Run writes the journal and the record files until ctx ends. Then it writes what is left and makes a checkpoint. It
// returns nil if the files have everything, durably. It may be called once.
func (l *Log) Run(ctx context.Context) error {
	rest, stop := context.WithCancel(context.WithoutCancel(ctx))
	var journalling, writing sync.WaitGroup
	journalling.Go(func() {
		if err := l.journal.Run(rest); err != nil {
			l.fail(err)
		}
	})
	ended := make(chan struct{})
	for range writers {
		writing.Go(func() { l.write(ended) })
	}
	err := l.makeCheckpoints(ctx)
	close(ended)
	writing.Wait()
	stop()
	journalling.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.err, err)
}

// fail makes every later call fail. Only the first error counts.
func (l *Log) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
	l.end()
	l.endFlushLocked()
	l.onTimeLocked()
}

// durable reports whether the last line is durable; a line of an earlier process is.
func (s *state) durable() bool {
	return s.commit == nil || notify.IsClosed(s.commit.Done()) && s.commit.Err() == nil
}

// dropLocked forgets an operation if everything of it is durable, seen and written.
func (l *Log) dropLocked(id string, s *state) {
	if s.behind == 0 && s.unseen == 0 && !s.writing && s.durable() {
		delete(l.states, id)
	}
}

// Last returns the number of the last line.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// unwrittenLocked returns the number of the first line that a file lacks, or whose marker is not seen; 0 for none.
func (l *Log) unwrittenLocked() uint64 {
	numbers := []uint64{}
	for _, s := range l.states {
		if s.behind > 0 {
			numbers = append(numbers, s.behind)
		}
		if s.unseen > 0 {
			numbers = append(numbers, s.unseen)
		}
	}
	if len(numbers) == 0 {
		return 0
	}
	return slices.Min(numbers)
}
