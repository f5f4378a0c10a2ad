package events

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Retention says how long events are kept on disk. Both bounds hold, in whole segments, so somewhat more is kept.
type Retention struct {
	// Age is how old an event may get; 0 is no bound.
	Age time.Duration
	// Bytes is how large the log may get; 0 is no bound.
	Bytes int64
}

// DefaultRetention is the one of a daemon that was told nothing.
var DefaultRetention = Retention{Age: 7 * 24 * time.Hour, Bytes: 64 << 20}

// Options adjust a Log; the zero value is right for most.
type Options struct {
	Retention Retention
	// Logger gets what goes wrong; nil: none.
	Logger *slog.Logger
	// Recent is how many events are kept in memory, for readers that are not behind; default 1024.
	Recent int
	// Pending is how many events may wait to be written before further ones are left out; default 65,536.
	Pending int
	// Segment is how large a file of the log gets, in bytes; default 4 MiB, or less where the retention needs it.
	Segment int64
}

const (
	defaultRecent  = 1024
	defaultPending = 1 << 16
	defaultSegment = 4 << 20
	// segmentsKept is how many files the log is made of at least when it is as large or as old as it may get.
	segmentsKept = 8
)

// Log takes events and keeps them. Its methods may be called by any goroutine; a nil Log takes events and forgets them.
type Log struct {
	owner   *statefs.Owner
	options Options
	log     *slog.Logger

	inbox inbox
	more  chan struct{} // the inbox is no longer empty
	quit  chan struct{}
	ended chan struct{}

	writer writer // of the one goroutine
	before time.Time

	mu   sync.Mutex // guards what readers see
	ring ring
	wake chan struct{} // closed, and made anew, when there is something new
}

// inbox holds what is not numbered and written yet.
type inbox struct {
	mu      sync.Mutex
	events  []Event
	left    int // how many were left out because there was no room
	closed  bool
	waiting bool // the goroutine was told
}

// Open opens the event log of a storage, which is made when it is not there. The caller closes it, before the owner is released.
func Open(owner *statefs.Owner, options Options) (*Log, error) {
	options.Recent = cmp.Or(options.Recent, defaultRecent)
	options.Pending = cmp.Or(options.Pending, defaultPending)
	options.Segment = cmp.Or(options.Segment, defaultSegment)
	if most := options.Retention.Bytes / segmentsKept; most > 0 {
		options.Segment = min(options.Segment, most)
	}
	l := &Log{
		owner: owner, options: options, log: cmp.Or(options.Logger, slog.New(slog.DiscardHandler)),
		more: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}), wake: make(chan struct{}),
	}
	gap, err := l.writer.open(l)
	if err != nil {
		return nil, fmt.Errorf("open the event log: %w", err)
	}
	l.ring = newRing(options.Recent, l.writer.next-1)
	l.before = l.writer.resumed
	if gap != nil {
		l.Publish(Event{Type: Missing, Gap: gap})
	}
	go l.run()
	return l, nil
}

// Publish has an event numbered, written and told to all who follow. It does not wait for any of that.
func (l *Log) Publish(e Event) {
	if l == nil {
		return
	}
	if e.At.IsZero() {
		e.At = l.owner.Now()
	}
	in := &l.inbox
	in.mu.Lock()
	if in.closed {
		in.mu.Unlock()
		return
	}
	if len(in.events) >= l.options.Pending {
		in.left++
	} else {
		in.events = append(in.events, e)
	}
	tell := !in.waiting
	in.waiting = true
	in.mu.Unlock()
	if tell {
		select {
		case l.more <- struct{}{}:
		default:
		}
	}
}

// Close writes what was published, syncs the log and ends its goroutine. What is published later is forgotten. Readers read on what is there.
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

// Before returns the time of the last event that was there when the log was opened; the zero time when there was none.
func (l *Log) Before() time.Time {
	if l == nil {
		return time.Time{}
	}
	return l.before
}

// run writes what is published. While it does, more gathers: the busier it is, the more it writes at once.
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

// take returns what waits in the inbox, in the room that the caller has no more use for.
func (in *inbox) take(room []Event) (events []Event, left int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	events, left = in.events, in.left
	in.events, in.left, in.waiting = room, 0, false
	return events, left
}

// giveBack puts events back in front of what came meanwhile: they could not be numbered.
func (in *inbox) giveBack(events []Event, left, most int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	all := slices.Concat(events, in.events)
	over := max(0, len(all)-most)
	in.events, in.left = all[:len(all)-over], in.left+left+over
}

// roomKept bounds the memory that is kept for the next batch, in events: a burst need not stay in memory.
const roomKept = 1024

func (l *Log) flush() {
	events, left := l.inbox.take(l.writer.room)
	l.writer.room = nil
	if len(events) == 0 && left == 0 {
		return
	}
	shown, err := l.writer.write(events, left)
	if len(shown) == 0 && err != nil {
		l.inbox.giveBack(events, left, l.options.Pending)
	} else {
		clear(events)
		if cap(events) <= roomKept {
			l.writer.room = events[:0]
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

// report says an error of writing once, and when it is over.
func (w *writer) report(err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	switch {
	case said == w.said:
	case err != nil:
		w.logger.Warn("events cannot be written; who follows later gets a gap instead", "error", err)
	default:
		w.logger.Info("events are written again")
	}
	w.said = said
}

// encode makes the line of an event.
func encode(e *Event) ([]byte, error) {
	line, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode event %d: %w", e.Seq, err)
	}
	return append(line, '\n'), nil
}

// errTorn says that a line of the log is not whole.
var errTorn = errors.New("a line of the event log cannot be read")

func decode(line []byte) (*Event, error) {
	e := new(Event)
	if json.Unmarshal(line, e) != nil || e.Seq == 0 {
		return nil, errTorn
	}
	return e, nil
}
