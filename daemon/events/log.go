package events

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/notify"
)

// Retention is how long events are kept on disk. Both bounds apply to whole segments, so somewhat more is
// kept.
type Retention struct {
	// Age is the maximum age of an event; 0 is no bound.
	Age time.Duration
	// Bytes is the maximum size of the log; 0 is no bound.
	Bytes int64
}

// DefaultRetention applies if nothing is configured.
var DefaultRetention = Retention{Age: 7 * 24 * time.Hour, Bytes: 64 << 20}

// Options configure a Log; the zero value suits most uses.
type Options struct {
	Retention Retention
	// Logger gets errors; nil: none.
	Logger *slog.Logger
	// Recent is how many events are kept in memory for readers that keep up; default 1024.
	Recent int
	// Pending is how many events may wait to be written before further ones are dropped; default 65,536.
	Pending int
	// Segment is the maximum size of a segment, in bytes; default 4 MiB, or less if the retention requires
	// it.
	Segment int64
}

const (
	defaultRecent  = 1024
	defaultPending = 1 << 16
	defaultSegment = 4 << 20
	// segmentsKept is the minimum number of segments of a log that has reached its maximum size or age.
	segmentsKept = 8
)

// Log stores events. Its methods are safe for concurrent use; a nil Log discards events.
type Log struct {
	owner   *statefs.Owner
	options Options

	inbox inbox
	more  chan struct{} // the inbox is no longer empty
	quit  chan struct{}
	ended chan struct{}

	writer writer // used only by the goroutine of the log

	mu   sync.Mutex // guards what readers see
	ring ring
	wake chan struct{} // closed and replaced when there are new events
}

// inbox holds events that are not yet numbered and written.
type inbox struct {
	mu      sync.Mutex
	events  []api.Event
	dropped int // how many were dropped because it was full
	closed  bool
}

// Open opens the event log of a storage and creates it if necessary. The caller closes it before it releases
// the owner.
func Open(owner *statefs.Owner, options Options) (*Log, error) {
	options.Logger = cmp.Or(options.Logger, slog.New(slog.DiscardHandler))
	options.Recent = cmp.Or(options.Recent, defaultRecent)
	options.Pending = cmp.Or(options.Pending, defaultPending)
	options.Segment = cmp.Or(options.Segment, defaultSegment)
	if most := options.Retention.Bytes / segmentsKept; most > 0 {
		options.Segment = min(options.Segment, most)
	}
	l := &Log{
		owner: owner, options: options,
		more: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}), wake: make(chan struct{}),
	}
	gap, err := l.writer.open(l)
	if err != nil {
		return nil, fmt.Errorf("open the event log: %w", err)
	}
	l.ring = ring{list: make([]Frame, 0, options.Recent), most: options.Recent, base: l.writer.next - 1, last: l.writer.next - 1}
	if gap != nil {
		l.Publish(api.Event{Type: Missing, Gap: gap})
	}
	go l.run()
	return l, nil
}

// Publish queues an event to be numbered, written and sent to all subscribers. It does not block.
func (l *Log) Publish(e api.Event) {
	if l == nil {
		return
	}
	if e.At.IsZero() {
		e.At = l.owner.Now()
	}
	in := &l.inbox
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return
	}
	if len(in.events) >= l.options.Pending {
		in.dropped++
	} else {
		in.events = append(in.events, e)
	}
	notify.Wake(l.more)
}

// Close writes the published events, syncs the log and ends its goroutine. Later events are discarded.
// Readers can still read what is stored.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.inbox.mu.Lock()
	was := l.inbox.closed
	l.inbox.closed = true
	l.inbox.mu.Unlock()
	if was {
		return nil
	}
	close(l.quit)
	<-l.ended
	if err := l.writer.close(); err != nil {
		return fmt.Errorf("close the event log: %w", err)
	}
	return nil
}

// Last returns the number of the newest event that readers can see.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ring.last
}

// Before returns the newest time of the last events that existed when the log was opened; the zero time if there was
// none. The last event may be older: operations are published side by side.
func (l *Log) Before() time.Time {
	if l == nil {
		return time.Time{}
	}
	return l.writer.resumed
}

// run writes published events in batches: the busier the daemon is, the larger the batches become.
func (l *Log) run() {
	defer close(l.ended)
	for {
		select {
		case <-l.more:
			l.flush()
		case <-l.quit:
			l.flush()
			return
		}
	}
}

// take returns the events of the inbox and how many were dropped; room becomes the new buffer of the inbox.
func (in *inbox) take(room []api.Event) (events []api.Event, left int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	events, left = in.events, in.dropped
	in.events, in.dropped = room, 0
	return events, left
}

// requeue puts events that could not be numbered back in front of newer ones.
func (in *inbox) requeue(events []api.Event, left, most int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	all := slices.Concat(events, in.events)
	over := max(0, len(all)-most)
	in.events, in.dropped = all[:len(all)-over], in.dropped+left+over
}

// maxKeptBatch bounds the buffer that is kept for the next batch, in events, so that a burst does not occupy
// memory.
const maxKeptBatch = 1024

func (l *Log) flush() {
	events, left := l.inbox.take(l.writer.spare)
	l.writer.spare = nil
	if len(events) == 0 && left == 0 {
		return
	}
	shown, err := l.writer.write(events, left)
	if len(shown) == 0 && err != nil {
		l.inbox.requeue(events, left, l.options.Pending)
	} else {
		clear(events)
		if cap(events) <= maxKeptBatch {
			l.writer.spare = events[:0]
		}
	}
	l.writer.report(err)
	l.mu.Lock()
	l.ring.add(shown)
	wake := l.wake
	l.wake = make(chan struct{})
	l.mu.Unlock()
	close(wake)
}

// report logs a write error once, and its end.
func (w *writer) report(err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	switch {
	case said == w.lastError:
	case err != nil:
		w.log.options.Logger.Warn("events cannot be written; later subscribers get a gap instead", "error", err)
	default:
		w.log.options.Logger.Info("events can be written again")
	}
	w.lastError = said
}

// encode returns the frame of an event.
func encode(e *api.Event) (Frame, error) {
	line, err := json.Marshal(e)
	if err != nil {
		return Frame{}, fmt.Errorf("encode event %d: %w", e.Seq, err)
	}
	return Frame{e, line}, nil
}

// decode returns the event of a line, and false if the line cannot be read.
func decode(line []byte) (*api.Event, bool) {
	e := new(api.Event)
	return e, json.Unmarshal(line, e) == nil && e.Seq != 0
}
