package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
	"github.com/jobdir/jobdir/statefs/notify"
)

// Options are the settings of a Journal.
type Options struct {
	// Origin is written into the header of each segment that is started.
	Origin Origin
	// Durable syncs each frame. Otherwise a frame is committed once it is written: a kill loses nothing, a power cut may.
	Durable bool
	// SegmentSize is the size of a new segment in bytes. The default is 16 MiB.
	SegmentSize int64
	// MaxSegments is how many segments exist at most. The default is 8. A frame that is larger than a segment, what has
	// waited a second for a checkpoint, and what is left when Run ends get further ones.
	MaxSegments int
	// Reserve is how many free bytes Room leaves to appends that do not ask it. The default is 1 MiB.
	Reserve int64
	// Committed is called with the number of the last entry after each frame, in order and from one goroutine. May be nil.
	Committed func(last uint64)
}

const (
	defaultSegmentSize = 16 << 20
	defaultMaxSegments = 8
	defaultReserve     = 1 << 20
	// maxFrame is the size from which a frame takes no further append, if a segment is not smaller than two of them.
	maxFrame = 1 << 20
	// idleAfter is how long nothing must be appended before a frame without entries records what was viewed.
	idleAfter = 50 * time.Millisecond
	// retryAfter is the time between two tries while the disk is full, or the process may open no more files.
	retryAfter = time.Second
)

// ErrClosed is the error of what was appended when Run had ended.
var ErrClosed = errors.New("the journal is closed")

// FullError reports that the journal cannot grow, usually because the disk is full. Err is the reason; it may also be
// that the process may open no more files.
type FullError struct {
	Folder string
	Err    error
}

func (e *FullError) Error() string {
	advice := "the next try is in a second"
	switch {
	case files.DiskFull(e.Err):
		advice = "free space on the disk of this folder"
	case machine.OutOfFiles(e.Err):
		advice = "raise the limit of open files (ulimit -n, LimitNOFILE= in a unit of systemd)"
	}
	return fmt.Sprintf("the journal in %s cannot grow: %v; %s", e.Folder, e.Err, advice)
}

func (e *FullError) Unwrap() error { return e.Err }

// Commit is a number of appends that become durable together.
type Commit struct {
	done  chan struct{}
	err   error // once done is closed
	buf   []byte
	first uint64
	count int
}

// Done is closed when the entries are durable, or when they will never be.
func (c *Commit) Done() <-chan struct{} { return c.done }

// Err returns why the entries are not durable. It must not be called before Done is closed.
func (c *Commit) Err() error { return c.err }

// Wait waits until the entries are durable. If ctx ends first, they may still become durable.
func (c *Commit) Wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Journal appends to the journal of a folder. Its methods may be called concurrently. Only one process may have it.
type Journal struct {
	root   *os.Root
	o      Options
	work   chan struct{} // wakes the writer
	demand chan struct{} // wakes the preparer

	file  *os.File // of the current segment; only the writer uses it, as the one below
	frame uint64   // number of the last frame with entries

	mu      sync.Mutex    // guards the fields below
	changed chan struct{} // closed and replaced when there may be more room
	pending []*Commit     // oldest first
	bytes   int64         // of pending
	next    uint64        // number of the next entry
	viewed  uint64
	noted   uint64 // what was viewed when the last frame was written
	// checkpoint is the last number that Checkpoint got, released the last number that a frame on the disk has.
	checkpoint, released uint64
	unwritten            uint64 // number of the first entry that no frame on the disk has
	err                  error  // why nothing can be appended any more
	lack                 error  // why the preparer fails
	blocked              error  // why the writer fails, and tries again
	segments
}

// segments are the files of the journal.
type segments struct {
	highest uint64    // number of the last segment
	closed  []segment // oldest first
	current segment   // none has the number 0
	taken   segment   // the next current one; none has the number 0
	spare   []segment // lowest first
	free    []segment // released, to be renamed or removed
	wanted  int64     // size of the segment that a frame waits for, 0 if none does
	ending  bool      // the context of Run has ended: nothing may release a segment any more
	filled  int       // how many were closed since the last checkpoint
	keep    int       // how many are kept beside the current one
}

// segment is a file of the journal.
type segment struct {
	number uint64
	size   int64
	at     int64  // end of the last frame
	last   uint64 // number of the last entry
}

func (s *segments) count() int {
	return len(s.closed) + len(s.spare) + len(s.free) + int(min(1, s.current.number)+min(1, s.taken.number))
}

// Open continues a journal behind the frames that a Reader has returned: all of them. after is the number after which
// entries are numbered, if it is higher than that of the last entry. Nothing may be read from the Reader any more.
func Open(r *Reader, after uint64, o Options) (*Journal, error) {
	if o.SegmentSize == 0 {
		o.SegmentSize = defaultSegmentSize
	}
	if o.MaxSegments == 0 {
		o.MaxSegments = defaultMaxSegments
	}
	if o.Reserve == 0 {
		o.Reserve = min(defaultReserve, o.SegmentSize/4)
	}
	j := &Journal{
		root: r.root, o: o, work: make(chan struct{}, 1), demand: make(chan struct{}, 1), changed: make(chan struct{}),
		frame: r.end.Frame, noted: r.end.Viewed, viewed: r.end.Viewed, next: max(after, r.end.Entry) + 1,
		unwritten: max(after, r.end.Entry) + 1, checkpoint: r.end.Checkpoint, released: r.end.Checkpoint, segments: segments{keep: 1},
	}
	for _, s := range r.segments {
		j.highest = max(j.highest, s.Number)
		switch known := (segment{number: s.Number, size: s.size, last: s.last}); {
		case s.last > r.end.Checkpoint:
			j.closed = append(j.closed, known)
		case s.used || s.size != o.SegmentSize || s.Number < r.end.Header.Number:
			j.free = append(j.free, known)
		default:
			j.spare = append(j.spare, known)
		}
	}
	if o.Durable {
		if err := r.sync(); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// Next returns the number of the next entry. The caller keeps others from appending until it appends.
func (j *Journal) Next() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.next
}

// Append adds entries to the end, all of them to one frame. It makes no system call, waits for nothing and never
// fails: an entry that cannot be written makes its Commit fail, and Run. An entry must not have a line end.
func (j *Journal) Append(entries ...[]byte) *Commit {
	j.mu.Lock()
	defer j.mu.Unlock()
	size := len(entries)
	for _, entry := range entries {
		size += len(entry)
	}
	var c *Commit
	if n := len(j.pending); n > 0 {
		c = j.pending[n-1]
	}
	if c == nil || int64(len(c.buf)+size) > min(maxFrame, j.o.SegmentSize/2) {
		c = &Commit{done: make(chan struct{}), buf: make([]byte, frameHeaderSize, frameHeaderSize+size), first: j.next}
		if j.err != nil {
			c.err = j.err
			close(c.done)
			return c
		}
		j.pending = append(j.pending, c)
		j.bytes += frameHeaderSize
	}
	for _, entry := range entries {
		c.buf = append(append(c.buf, entry...), '\n')
	}
	c.count += len(entries)
	j.next += uint64(len(entries))
	j.bytes += int64(size)
	notify.Wake(j.work)
	return c
}

// Viewed says that everything up to an entry can be seen in the folders of the storage. Later frames record it.
func (j *Journal) Viewed(entry uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.viewed == j.noted && entry > j.viewed { // otherwise the writer knows that there is something to record
		notify.Wake(j.work)
	}
	j.viewed = max(j.viewed, entry)
}

// Room waits until there is room for size bytes beside the reserve, or for a whole segment if that is less: a larger
// frame gets a segment of its own. The error is a *FullError if the journal cannot grow now.
func (j *Journal) Room(ctx context.Context, size int64) error {
	for {
		j.mu.Lock()
		free := j.current.size - j.current.at - j.bytes
		for _, s := range j.spare {
			free += s.size - headerSize
		}
		changed, err, lack := j.changed, j.err, j.lackLocked()
		j.mu.Unlock()
		switch {
		case err != nil:
			return err
		case free >= min(size+j.o.Reserve, j.o.SegmentSize-headerSize):
			return nil
		case lack != nil:
			return lack
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Checkpoint says that entries up to a number are not needed any more. When a frame on the disk says so too, their
// segments are used again. A segment is removed if so many were not filled since the checkpoint before.
func (j *Journal) Checkpoint(entry uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.checkpoint = max(j.checkpoint, entry)
	notify.Wake(j.work)
}

// Status describes a journal for people.
type Status struct {
	// Segments is the number of files, Full how many of them wait for a checkpoint.
	Segments, Full int
	// Durable is the number of the last entry that is durable.
	Durable uint64
	// Lack is a *FullError while the journal cannot grow, otherwise nil.
	Lack error
}

// Status returns the present state.
func (j *Journal) Status() Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Status{j.count(), len(j.closed), j.unwritten - 1, j.lackLocked()}
}

// lackLocked returns a *FullError if the writer or the preparer fails.
func (j *Journal) lackLocked() error {
	if err := cmp.Or(j.blocked, j.lack); err != nil {
		return &FullError{j.root.Name(), err}
	}
	return nil
}

// Run writes what is appended until ctx ends, then the rest, and returns. While the disk is full, or the process may
// open no more files, it tries again; after the end of ctx that is an error. After an error nothing can be appended:
// what the disk holds is not known until it is read again.
func (j *Journal) Run(ctx context.Context) error {
	var preparing sync.WaitGroup
	prepare, stop := context.WithCancel(context.WithoutCancel(ctx))
	preparing.Go(func() { j.prepare(prepare) })
	err := j.write(ctx)
	stop()
	preparing.Wait()
	if err == nil {
		j.fail(ErrClosed)
	} else {
		j.fail(fmt.Errorf("%w: %w", ErrClosed, err))
	}
	if j.file != nil {
		err = errors.Join(err, j.file.Close())
	}
	return err
}

// fail makes all that is appended from now on fail.
func (j *Journal) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.err = err
	for _, c := range j.pending {
		c.err = err
		close(c.done)
	}
	j.pending, j.bytes = nil, 0
	j.announceLocked()
}

// Refuse makes all that is appended from now on fail.
func (j *Journal) Refuse() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.err = cmp.Or(j.err, ErrClosed)
	j.announceLocked()
}

// announceLocked wakes the calls that wait for room or for a segment.
func (j *Journal) announceLocked() {
	close(j.changed)
	j.changed = make(chan struct{})
}
