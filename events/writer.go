package events

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// writer numbers events and writes them to segments. It belongs to one goroutine.
type writer struct {
	owner   *statefs.Owner
	logger  *slog.Logger
	options *Options
	dir     string

	next, end uint64 // the numbers in hand
	file      *os.File
	name      string
	size      int64
	began     time.Time // when the segment was begun, or opened
	pruned    time.Time // when old segments were last looked for
	resumed   time.Time // of the last event that was there when the log was opened

	room []Event // of the batch before
	buf  []byte
	said string // the error that was reported last
}

// open finds the end of the log. The gap is what may be missing there, nil when the log was closed in order.
func (w *writer) open(l *Log) (*Gap, error) {
	w.owner, w.logger, w.options, w.dir = l.owner, l.log, &l.options, l.owner.EventsDir()
	if err := os.MkdirAll(w.dir, 0o750); err != nil {
		return nil, err
	}
	segments, err := listSegments(w.dir)
	if err != nil {
		return nil, err
	}
	var last uint64
	if n := len(segments); n > 0 {
		if last, err = w.resume(segments[n-1]); err != nil {
			return nil, err
		}
	}
	first, end, whole, err := w.owner.ReserveEvents(last + 1)
	if err != nil {
		return nil, errors.Join(err, w.closeFile())
	}
	w.next, w.end = first, end
	w.prune(w.owner.Now())
	if whole {
		return nil, nil
	}
	return &Gap{From: last + 1, To: first - 1, Reason: GapCrash}, nil
}

// resume opens the newest segment behind its last whole line, and returns the number there: of the one that the name says, less one,
// when it holds none.
func (w *writer) resume(s segment) (last uint64, err error) {
	path := filepath.Join(w.dir, s.name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return 0, err
	}
	e, size, err := lastWhole(f)
	if last = s.first - 1; e != nil {
		last, w.resumed = max(last, e.Seq), e.At
	}
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		return 0, errors.Join(err, f.Close())
	}
	w.file, w.name, w.size, w.began = f, s.name, size, w.owner.Now()
	return last, nil
}

// write numbers events and writes them; left is how many were left out behind them. When no number can be had it returns none. What could not be
// written is returned all the same: who follows now is told.
func (w *writer) write(events []Event, left int) (out []shown, err error) {
	need := uint64(len(events) + left)
	if left > 0 {
		need++
	}
	if w.next+need > w.end {
		// Nobody else takes numbers, so the block follows the one in hand.
		_, end, _, err := w.owner.ReserveEvents(w.next + need)
		if err != nil {
			return nil, err
		}
		w.end = end
	}
	out = make([]shown, 0, len(events)+1)
	w.buf = w.buf[:0]
	add := func(e Event) {
		e.Seq = w.next
		w.next++
		line, failed := encode(&e)
		if failed != nil {
			err = errors.Join(err, failed)
			return
		}
		w.buf = append(w.buf, line...)
		out = append(out, shown{&e, line})
	}
	for _, e := range events {
		add(e)
	}
	if left > 0 {
		gap := &Gap{From: w.next, To: w.next + uint64(left) - 1, Reason: GapOverflow}
		w.next += uint64(left)
		add(Event{Type: Missing, At: w.owner.Now(), Gap: gap})
	}
	return out, errors.Join(err, w.append(out))
}

// append writes buf, which holds the lines of events.
func (w *writer) append(events []shown) error {
	if len(events) == 0 {
		return nil
	}
	now := w.owner.Now()
	if err := w.rotate(events[0].event.Seq, now); err != nil {
		return err
	}
	_, err := w.file.Write(w.buf)
	if err != nil {
		// A part of a line must not stand before the next one.
		if w.file.Truncate(w.size) != nil {
			_ = w.closeFile() // the next one begins another segment
		}
	} else {
		w.size += int64(len(w.buf))
	}
	if cap(w.buf) > 1<<20 {
		w.buf = nil // a burst need not stay in memory
	}
	return err
}

// rotate begins another segment when there is none, the present one is full or old, or somebody removed it.
func (w *writer) rotate(first uint64, now time.Time) error {
	old := w.options.Retention.Age > 0 && now.Sub(w.began) > w.options.Retention.Age/segmentsKept
	if w.file != nil && w.size < w.options.Segment && !old && w.size > 0 {
		if w.pruneDue(now) {
			w.prune(now)
			return w.notice(first, now)
		}
		return nil
	}
	return w.begin(first, now)
}

// notice begins another segment when the present one was taken away.
func (w *writer) notice(first uint64, now time.Time) error {
	held, err := w.file.Stat()
	if err == nil {
		if named, lerr := os.Lstat(filepath.Join(w.dir, w.name)); lerr == nil && os.SameFile(held, named) {
			return nil
		}
	}
	return w.begin(first, now)
}

func (w *writer) begin(first uint64, now time.Time) error {
	if err := os.MkdirAll(w.dir, 0o750); err != nil {
		return err
	}
	name := segmentName(first)
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	if err := f.Chmod(0o640); err != nil { // whatever the umask is
		return errors.Join(err, f.Close())
	}
	_ = w.closeFile() // never synced, so there is nothing that a close could tell
	w.file, w.name, w.size, w.began = f, name, 0, now
	w.prune(now)
	return nil
}

// pruneEvery is how often old segments are looked for while the present one has room.
const pruneEvery = time.Minute

func (w *writer) pruneDue(now time.Time) bool {
	return now.Sub(w.pruned) > pruneEvery || now.Before(w.pruned)
}

// prune removes the oldest segments as far as the retention says. The present one stays.
func (w *writer) prune(now time.Time) {
	w.pruned = now
	segments, err := listSegments(w.dir)
	if err != nil {
		w.logger.Warn("old events are not removed", "error", err)
		return
	}
	var sum int64
	for _, s := range slices.Backward(segments) {
		sum += s.size
		keep := w.options.Retention
		over := keep.Bytes > 0 && sum > keep.Bytes || keep.Age > 0 && now.Sub(s.changed) > keep.Age
		if over && s.name != w.name {
			if err := os.Remove(filepath.Join(w.dir, s.name)); err != nil {
				w.logger.Warn("old events are not removed", "error", err)
			}
		}
	}
}

// close syncs what was written and notes that the log is whole.
func (w *writer) close() error {
	var err error
	if w.file != nil {
		err = w.file.Sync()
	}
	if err = errors.Join(err, w.closeFile()); err != nil {
		return err
	}
	return w.owner.CloseEvents(w.next)
}

func (w *writer) closeFile() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}
