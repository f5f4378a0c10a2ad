package events

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/jobdir/jobdir/statefs/api"
)

// Now is the position of a reader that wants only new events.
const Now = ^uint64(0)

// batch is how many events are examined at once.
const batch = 256

// lineLimit bounds the length of a line, in bytes.
const lineLimit = 256 << 10

// Frame is an event as a reader receives it.
type Frame struct {
	*api.Event
	// JSON is the event as one line, without a newline. All readers share it, so it must not be changed.
	JSON []byte
}

// Reader reads the log from a number on. It is not safe for concurrent use.
type Reader struct {
	log     *Log
	filter  Filter
	pos     uint64 // the number of the last event that was examined
	scan    *scan  // the position in the segments; nil while the ring has the next event
	pending *Frame // the frame to return before anything else
}

// Follow returns a reader of the stored events with a number above after, which may be Now. The caller closes
// it.
func (l *Log) Follow(filter Filter, after uint64) *Reader {
	r := &Reader{log: l, filter: filter, pos: after}
	last := l.Last()
	switch {
	case after == Now:
		r.pos = last
	case after > last:
		gap := l.gap(last, last+1, after, GapUnknown)
		r.pending, r.pos = &gap, last
	}
	return r
}

// Close closes the files of the reader.
func (r *Reader) Close() {
	if r.scan != nil {
		r.scan.close()
		r.scan = nil
	}
}

// Position returns the number of the last examined event, from which a later reader can resume.
func (r *Reader) Position() uint64 { return r.pos }

// Cut returns the last frame for a reader that is disconnected because it accepted nothing: a gap of
// everything after told, the number of its last event. The frame has that number too, so that the reader can
// resume after it and get the events that are still stored.
func (r *Reader) Cut(told uint64) Frame {
	return r.log.gap(told, told+1, max(told, r.log.Last()), GapSlow)
}

// Wake returns a channel that is closed when new events arrive after the call. Call Wake, then Take, and then
// wait.
func (r *Reader) Wake() <-chan struct{} {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return r.log.wake
}

// Take returns the next events that match the filter, and whether more can be taken immediately. It does not
// block.
func (r *Reader) Take() (frames []Frame, more bool) {
	if r.pending != nil {
		frames, r.pending = append(frames, *r.pending), nil
	}
	list, base := r.recent()
	if list == nil {
		return r.older(frames, base)
	}
	r.Close()
	for _, f := range list {
		frames = r.accept(frames, f, GapLost)
	}
	return frames, len(list) == batch
}

// recent returns the next events of the ring; nil if the reader is behind base, the oldest number of the
// ring.
func (r *Reader) recent() (list []Frame, base uint64) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.pos < r.log.ring.base {
		return nil, r.log.ring.base
	}
	return r.log.ring.after(r.pos, batch), 0
}

// older reads from the segments, up to the number from which the ring continues.
func (r *Reader) older(frames []Frame, base uint64) ([]Frame, bool) {
	if r.scan == nil {
		r.scan = newScan(r.log.owner.EventsDir(), r.pos+1)
	}
	for range batch {
		if r.pos >= base {
			return frames, true
		}
		e, line, ok := r.scan.next()
		if !ok {
			// The segments end here, so the rest is missing.
			return r.appendGap(frames, base, r.scan.reason()), true
		}
		if e.Seq > r.pos {
			frames = r.accept(frames, Frame{e, line}, r.scan.reason())
			r.scan.removed = false
		}
	}
	return frames, true
}

// accept appends the next event, after a gap if its number does not follow the last one.
func (r *Reader) accept(frames []Frame, f Frame, reason string) []Frame {
	told := f.Type == Missing && f.Gap != nil && f.Gap.From <= r.pos+1
	if f.Seq > r.pos+1 && !told {
		frames = r.appendGap(frames, f.Seq-1, reason)
	}
	r.pos = f.Seq
	if r.filter.Wants(f.Event) {
		frames = append(frames, f)
	}
	return frames
}

// appendGap appends a gap up to a number.
func (r *Reader) appendGap(frames []Frame, to uint64, reason string) []Frame {
	gap := r.log.gap(to, r.pos+1, to, reason)
	r.pos = to
	return append(frames, gap)
}

// gap returns the frame of a gap, with a number for the reader to resume after.
func (l *Log) gap(seq, from, to uint64, reason string) Frame {
	gap := &api.EventGap{From: from, To: to, Reason: reason}
	f, _ := encode(&api.Event{Seq: seq, Type: Missing, At: l.owner.Now(), Gap: gap}) // a gap always encodes
	return f
}

// scan reads the segments, beginning with the segment of a given number.
type scan struct {
	dir  string
	want uint64 // the first number to return
	// removed reports that a segment before the current one was removed.
	removed bool
	name    string // of the current segment
	file    *os.File
	lines   *bufio.Reader
	read    int64 // offset after the last whole line that was read
}

func newScan(dir string, want uint64) *scan { return &scan{dir: dir, want: want, removed: true} }

func (s *scan) close() {
	if s.file != nil {
		_ = s.file.Close() // opened for reading
		s.file = nil
	}
}

// reason returns why a number is missing.
func (s *scan) reason() string {
	if s.removed {
		return GapRetention
	}
	return GapLost
}

// next returns the next readable event; ok is false if there is none now.
func (s *scan) next() (e *api.Event, line []byte, ok bool) {
	for {
		if s.file == nil && !s.open() {
			return nil, nil, false
		}
		line, err := s.line()
		if err != nil {
			if !errors.Is(err, io.EOF) || !s.open() {
				return nil, nil, false
			}
			continue
		}
		e, ok := decode(line)
		if !ok {
			continue // the missing number becomes a gap
		}
		if e.Seq >= s.want {
			return e, bytes.Clone(line), true
		}
	}
}

// line returns the next whole line. It leaves an incomplete last line, which may still be being written.
func (s *scan) line() ([]byte, error) {
	long := int64(0)
	for {
		line, err := s.lines.ReadSlice('\n')
		switch {
		case err == nil && long > 0:
			s.read += long + int64(len(line))
			long = 0 // longer than any line that jobdir writes
		case err == nil:
			s.read += int64(len(line))
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
			long += int64(len(line))
		default:
			if _, failed := s.file.Seek(s.read, io.SeekStart); failed != nil {
				return nil, failed
			}
			s.lines.Reset(s.file)
			return nil, err
		}
	}
}

// open opens the segment after the current one, or the segment with the wanted number.
func (s *scan) open() bool {
	segments, err := listSegments(s.dir)
	if err != nil {
		return false
	}
	for i, found := range segments {
		if s.name != "" && found.name <= s.name {
			continue
		}
		if s.name == "" && i+1 < len(segments) && segments[i+1].first <= s.want {
			continue // the wanted number is in a later one
		}
		f, err := os.Open(filepath.Join(s.dir, found.name))
		if err != nil {
			continue // it was removed since the listing
		}
		s.close()
		s.removed = s.removed && found.first > s.want || s.name != "" && i == 0
		s.file, s.name, s.lines, s.read = f, found.name, bufio.NewReaderSize(f, lineLimit), 0
		return true
	}
	return false
}
