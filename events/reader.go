package events

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Now is the position of a reader that wants what happens from now on.
const Now = ^uint64(0)

// batch is how many events are looked at in one go.
const batch = 256

// lineLimit bounds what is read as one line, in bytes.
const lineLimit = 256 << 10

// Frame is an event as a reader gets it.
type Frame struct {
	*Event
	// JSON is the event as one line, without a newline. It is shared by all readers and must not be changed.
	JSON []byte
}

// Reader follows the log from a number on. It belongs to one goroutine.
type Reader struct {
	log    *Log
	filter Filter
	pos    uint64 // the number of the event that was looked at last
	behind *scan  // the place in the segments; nil while the ring has what is needed
	first  *Frame // what is to be told before anything else
}

// Follow returns a reader of the events with a number above after, which may be Now, as far as they are kept. The caller closes it.
func (l *Log) Follow(filter Filter, after uint64) *Reader {
	r := &Reader{log: l, filter: filter, pos: after}
	last := l.Last()
	switch {
	case after == Now:
		r.pos = last
	case after > last:
		gap := frameOf(&Event{Seq: last, Type: Missing, At: l.owner.Now(), Gap: &Gap{From: last + 1, To: after, Reason: GapUnknown}})
		r.first, r.pos = &gap, last
	}
	return r
}

// Close releases what the reader has open.
func (r *Reader) Close() {
	if r.behind != nil {
		r.behind.close()
		r.behind = nil
	}
}

// Position returns the number up to which everything was looked at: where a reader goes on that comes back.
func (r *Reader) Position() uint64 { return r.pos }

// Cut returns the last frame of a reader that is let go because it took nothing: a gap of everything behind told, the last number that it
// was told of. The frame has that number too, so who goes on after it gets what is still kept of the rest.
func (r *Reader) Cut(told uint64) Frame {
	gap := &Gap{From: told + 1, To: max(told, r.log.Last()), Reason: GapSlow}
	return frameOf(&Event{Seq: told, Type: Missing, At: r.log.owner.Now(), Gap: gap})
}

// Wake returns a channel that is closed when there is more than when it was called. Take what is there after asking for it, and before
// waiting.
func (r *Reader) Wake() <-chan struct{} {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return r.log.wake
}

// Take returns the next events that pass the filter, some at a time, and whether there is more to take at once. It does not wait.
func (r *Reader) Take() (frames []Frame, more bool) {
	if r.first != nil {
		frames, r.first = append(frames, *r.first), nil
	}
	list, base := r.recent()
	if list == nil {
		return r.older(frames, base)
	}
	r.Close()
	for _, s := range list {
		frames = r.accept(frames, Frame{s.event, bytes.TrimSuffix(s.line, []byte("\n"))}, GapLost)
	}
	return frames, len(list) == batch
}

// recent returns what the ring has for the reader; nil when it is further behind than base.
func (r *Reader) recent() (list []shown, base uint64) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.pos < r.log.ring.base {
		return nil, r.log.ring.base
	}
	return r.log.ring.after(r.pos, batch), 0
}

// older reads from the segments, up to the number from which the ring goes on.
func (r *Reader) older(frames []Frame, base uint64) ([]Frame, bool) {
	if r.behind == nil {
		r.behind = newScan(r.log.owner.EventsDir(), r.pos+1)
	}
	for range batch {
		if r.pos >= base {
			return frames, true
		}
		e, line, ok := r.behind.next()
		if !ok {
			// All that was written has been read, and this is not there.
			return r.missing(frames, base, r.behind.reason()), true
		}
		if e.Seq > r.pos {
			frames = r.accept(frames, Frame{e, line}, r.behind.reason())
			r.behind.removed = false
		}
	}
	return frames, true
}

// accept takes the next event, and tells of a gap when its number is not the next one.
func (r *Reader) accept(frames []Frame, f Frame, reason string) []Frame {
	told := f.Type == Missing && f.Gap != nil && f.Gap.From <= r.pos+1
	if f.Seq > r.pos+1 && !told {
		frames = r.missing(frames, f.Seq-1, reason)
	}
	r.pos = f.Seq
	if r.filter.Wants(f.Event) {
		frames = append(frames, f)
	}
	return frames
}

// missing tells that there is nothing up to a number.
func (r *Reader) missing(frames []Frame, to uint64, reason string) []Frame {
	gap := &Event{Seq: to, Type: Missing, At: r.log.owner.Now(), Gap: &Gap{From: r.pos + 1, To: to, Reason: reason}}
	r.pos = to
	return append(frames, frameOf(gap))
}

func frameOf(e *Event) Frame {
	line, err := encode(e)
	if err != nil {
		line = []byte("{}\n") // a gap always encodes
	}
	return Frame{e, bytes.TrimSuffix(line, []byte("\n"))}
}

// scan reads the segments from the one on that holds a number.
type scan struct {
	dir  string
	want uint64 // the first number that is wanted
	// removed says that a segment is gone that stood before the one in hand.
	removed bool
	name    string // of the segment in hand
	file    *os.File
	lines   *bufio.Reader
	read    int64 // behind the last whole line that was read of it
}

func newScan(dir string, want uint64) *scan { return &scan{dir: dir, want: want, removed: true} }

func (s *scan) close() {
	if s.file != nil {
		_ = s.file.Close() // opened for reading
		s.file = nil
	}
}

// reason says why a number is not there.
func (s *scan) reason() string {
	if s.removed {
		return GapRetention
	}
	return GapLost
}

// next returns the next event that can be read; ok is false when there is none now.
func (s *scan) next() (e *Event, line []byte, ok bool) {
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
		e, err := decode(line)
		if err != nil {
			continue // a number that is not there is a gap
		}
		if e.Seq >= s.want {
			return e, bytes.Clone(line), true
		}
	}
}

// line returns the next whole line. What follows it stays to be read: it may be a line that is being written.
func (s *scan) line() ([]byte, error) {
	long := int64(0)
	for {
		line, err := s.lines.ReadSlice('\n')
		switch {
		case err == nil && long > 0:
			s.read += long + int64(len(line))
			long = 0 // no line of ours is as long
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

// open opens the segment behind the one in hand, or the one that holds the number that is wanted.
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
			continue // the wanted number is further on
		}
		f, err := os.Open(filepath.Join(s.dir, found.name))
		if err != nil {
			continue // it was removed meanwhile
		}
		s.close()
		s.removed = s.removed && found.first > s.want || s.name != "" && i == 0
		s.file, s.name, s.lines, s.read = f, found.name, bufio.NewReaderSize(f, lineLimit), 0
		return true
	}
	return false
}
