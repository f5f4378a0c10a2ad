package events

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/files"
)

// writer numbers events and writes them to segments. It is not safe for concurrent use.
type writer struct {
	log *Log
	dir string

	next, end    uint64 // the next number and the end of the reserved block
	reserved     bool   // a block was reserved since the log was opened
	file         *os.File
	name         string
	size         int64
	segmentStart time.Time // when the segment was created or opened
	pruned       time.Time // when old segments were last searched
	resumed      time.Time // the newest time of the last events that existed when the log was opened

	spare     []api.Event // the buffer of the previous batch
	buf       []byte
	lastError string // the error that was reported last
}

// open finds the end of the log. The gap covers events that may be missing there; it is nil if the log was
// closed properly.
func (w *writer) open(l *Log) (*api.EventGap, error) {
	w.log, w.dir = l, l.owner.EventsDir()
	if err := files.MakeFolder(w.dir); err != nil {
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
	first, end, whole, err := w.log.owner.Numbers.ReserveEvents(last + 1)
	if err != nil && !files.DiskFull(err) {
		return nil, errors.Join(err, w.closeFile())
	}
	w.report(err) // on a full disk the first write that finds room reserves the numbers
	w.next, w.end, w.reserved = first, end, err == nil
	w.prune(w.log.owner.Now())
	if whole {
		return nil, nil
	}
	return &api.EventGap{From: last + 1, To: first - 1, Reason: GapCrash}, nil
}

// resume opens the newest segment for appending after its last whole line. It returns the number of its last
// event, or the number before the first if the segment is empty.
func (w *writer) resume(s segment) (last uint64, err error) {
	path := filepath.Join(w.dir, s.name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return 0, err
	}
	e, newest, size, err := lastCompleteLine(f)
	if last = s.first - 1; e != nil {
		last, w.resumed = max(last, e.Seq), newest
	}
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		return 0, errors.Join(err, f.Close())
	}
	w.file, w.name, w.size, w.segmentStart = f, s.name, size, w.log.owner.Now()
	return last, nil
}

// write numbers events and writes them; left is how many were dropped after them. It returns none if no
// numbers can be reserved. Events that could not be written are returned too, so that current subscribers get
// them.
func (w *writer) write(events []api.Event, left int) (out []Frame, err error) {
	need := uint64(len(events) + left)
	if left > 0 {
		need++
	}
	if w.next+need > w.end {
		// Only this writer takes numbers, so the new block follows the current one.
		_, end, _, err := w.log.owner.Numbers.ReserveEvents(w.next + need)
		if err != nil {
			return nil, err
		}
		w.end, w.reserved = end, true
	}
	out = make([]Frame, 0, len(events)+1)
	w.buf = w.buf[:0]
	add := func(e api.Event) {
		e.Seq = w.next
		w.next++
		frame, failed := encode(&e)
		if failed != nil {
			err = errors.Join(err, failed)
			return
		}
		w.buf = append(append(w.buf, frame.JSON...), '\n')
		out = append(out, frame)
	}
	for _, e := range events {
		add(e)
	}
	if left > 0 {
		gap := &api.EventGap{From: w.next, To: w.next + uint64(left) - 1, Reason: GapOverflow}
		w.next += uint64(left)
		add(api.Event{Type: Missing, At: w.log.owner.Now(), Gap: gap})
	}
	return out, errors.Join(err, w.append(out))
}

// append writes buf, which contains the lines of events.
func (w *writer) append(events []Frame) error {
	if len(events) == 0 {
		return nil
	}
	now := w.log.owner.Now()
	if err := w.rotate(events[0].Seq, now); err != nil {
		return err
	}
	_, err := w.file.Write(w.buf)
	if err != nil {
		// A partial line must not precede the next one.
		if w.file.Truncate(w.size) != nil {
			_ = w.closeFile() // the next write creates another segment
		}
	} else {
		w.size += int64(len(w.buf))
	}
	if cap(w.buf) > 1<<20 {
		w.buf = nil // a burst should not occupy memory
	}
	return err
}

// rotate begins another segment if there is none, or the current one is full, old or removed. It notices a removal
// when it searches old segments.
func (w *writer) rotate(first uint64, now time.Time) error {
	old := w.log.options.Retention.Age > 0 && now.Sub(w.segmentStart) > w.log.options.Retention.Age/segmentsKept
	if w.file != nil && w.size < w.log.options.Segment && !old && w.size > 0 {
		if since := now.Sub(w.pruned); since >= 0 && since <= pruneEvery {
			return nil
		}
		w.prune(now)
		if files.IsNamed(w.file, filepath.Join(w.dir, w.name)) {
			return nil
		}
	}
	return w.begin(first, now)
}

func (w *writer) begin(first uint64, now time.Time) error {
	if err := files.MakeFolder(w.dir); err != nil {
		return err
	}
	name := segmentName(first)
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	if err := f.Chmod(0o640); err != nil { // independent of the umask
		return errors.Join(err, f.Close())
	}
	_ = w.closeFile() // never synced, so an error of close means nothing
	w.file, w.name, w.size, w.segmentStart = f, name, 0, now
	w.prune(now)
	return nil
}

// pruneEvery is how often old segments are searched while the current one has room.
const pruneEvery = time.Minute

// prune removes the oldest segments as the retention requires. The current one stays.
func (w *writer) prune(now time.Time) {
	w.pruned = now
	segments, err := listSegments(w.dir)
	if err != nil {
		w.log.options.Logger.Warn("old events not removed", "error", err)
		return
	}
	var sum int64
	for _, s := range slices.Backward(segments) {
		sum += s.size
		keep := w.log.options.Retention
		over := keep.Bytes > 0 && sum > keep.Bytes || keep.Age > 0 && now.Sub(s.changed) > keep.Age
		if over && s.name != w.name {
			if err := os.Remove(filepath.Join(w.dir, s.name)); err != nil {
				w.log.options.Logger.Warn("old events not removed", "error", err)
			}
		}
	}
}

// close syncs the log and records that it is complete.
func (w *writer) close() error {
	var err error
	if w.file != nil {
		err = w.file.Sync()
	}
	if err = errors.Join(err, w.closeFile()); err != nil || !w.reserved {
		return err // without numbers nothing was written
	}
	return w.log.owner.Numbers.CloseEvents(w.next)
}

func (w *writer) closeFile() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}
