package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"

	"github.com/jobdir/jobdir/statefs/files"
)

// DamageError reports that a part of the journal in front of others cannot be read. It is not what a crash leaves.
type DamageError struct {
	File   string
	Offset int64
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("the journal is damaged: %s at byte %d: %s; committed changes may be lost: restore the file, or "+
		"see \"jobdir journal repair\"", e.File, e.Offset, e.Reason)
}

// Reader reads the journal of a folder, also beside a process that writes it: then it returns what was written before,
// or an error that wraps fs.ErrNotExist if that process released a segment in between. A new Reader can try again.
// It is not safe for concurrent use.
type Reader struct {
	root     *os.Root
	segments []found
	end      End
	tail     tail
	damaged  int // index of the segment with the damage, and the place in it
	damageAt int
}

// tail is the bytes of the last frame.
type tail struct {
	data []byte
	at   int64
}

// found is a segment that was found in the folder.
type found struct {
	SegmentHeader
	size int64
	last uint64 // number of its last entry, once it was read
	used bool   // it has a header
}

// End is what a Reader knows when it has returned the last frame.
type End struct {
	// Frame and Entry are the numbers of the last frame and entry, 0 if there is none.
	Frame, Entry uint64
	// Viewed and Checkpoint are those of the last frame, also of one without entries.
	Viewed, Checkpoint uint64
	// Header is of the last segment with a frame, the zero value if there is none.
	Header SegmentHeader
}

// NewReader lists the segments of a folder. The folder may be empty. Beside a process that writes, the error may wrap
// fs.ErrNotExist, see Reader.
func NewReader(folder string) (r *Reader, err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.Close())
		}
	}()
	r = &Reader{root: root}
	for range maxReads {
		if moved, err := r.list(); err != nil || !moved {
			return r, err
		}
	}
	return r, nil
}

// list lists the segments, in order. It reports whether one got another name: then the list may lack some.
func (r *Reader) list() (moved bool, err error) {
	names, err := fs.ReadDir(r.root.FS(), ".")
	if err != nil {
		return false, fmt.Errorf("list the journal %s: %w", r.root.Name(), err)
	}
	r.segments = nil
	for _, entry := range names {
		number, ok := parseName(entry.Name())
		if !ok {
			continue
		}
		f, info, err := files.OpenRegularIn(r.root, entry.Name())
		if errors.Is(err, fs.ErrNotExist) {
			moved = true // it is being used again
			continue
		}
		if err != nil {
			return false, fmt.Errorf("open the journal in %s: %w", r.root.Name(), err)
		}
		block := make([]byte, headerSize)
		n, err := f.ReadAt(block, 0)
		if err = errors.Join(ignoreEOF(err), f.Close()); err != nil {
			return false, fmt.Errorf("read the journal: %w", err)
		}
		segment := found{size: info.Size()}
		segment.SegmentHeader, segment.used = parseHeader(block[:n])
		if segment.Number != number { // it was used before under a lower number
			segment = found{size: info.Size(), SegmentHeader: SegmentHeader{Number: number}}
		}
		r.segments = append(r.segments, segment)
	}
	slices.SortFunc(r.segments, func(a, b found) int { return int(int64(a.Number) - int64(b.Number)) })
	return moved, nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Close closes the folder. A Journal that was opened with the Reader uses the folder until Run has returned.
func (r *Reader) Close() error { return r.root.Close() }

// Frames returns all frames in order, once. The first error is the last value. It is a *DamageError if frames are
// missing before others.
func (r *Reader) Frames() iter.Seq2[*Frame, error] {
	return func(yield func(*Frame, error) bool) {
		for i := range r.segments {
			r.damaged = i
			if !r.read(&r.segments[i], yield) {
				return
			}
		}
	}
}

// Rest returns the frames that can be read behind the damage that Frames has returned, without those between them that
// cannot. An error is the last value.
func (r *Reader) Rest() iter.Seq2[*Frame, error] {
	return func(yield func(*Frame, error) bool) {
		at := r.damageAt
		for _, s := range r.segments[r.damaged:] {
			data, err := r.load(s.Number)
			if err != nil {
				yield(nil, err)
				return
			}
			for data = data[min(at, len(data)):]; len(data) > 0; {
				frame, size, ok := parseFrame(s.Number, data)
				if !ok {
					data = data[nextFrame(data):]
					continue
				}
				if !yield(frame, nil) {
					return
				}
				data = data[size:]
			}
			at = headerSize
		}
	}
}

// Damaged returns the names of the segments from the damage on, without spare ones.
func (r *Reader) Damaged() (names []string) {
	for i, s := range r.segments[r.damaged:] {
		if i == 0 || s.used {
			names = append(names, segmentName(s.Number))
		}
	}
	return names
}

// End returns what follows from the frames that were returned.
func (r *Reader) End() End { return r.end }

// read returns the frames of a segment, and false if none shall follow.
func (r *Reader) read(s *found, yield func(*Frame, error) bool) bool {
	if !s.used {
		err := r.checkSpare(s)
		return err == nil || yield(nil, err) && false
	}
	data, err := r.load(s.Number)
	if err != nil {
		return yield(nil, err) && false
	}
	at, again := headerSize, false
	for {
		frame, size, ok := parseFrame(s.Number, data[min(at, len(data)):])
		switch {
		case ok && r.follows(frame):
			frame.Offset = int64(at)
			s.last = frame.Last()
			r.end = End{frame.Number, frame.Last(), frame.Viewed, frame.Checkpoint, s.SegmentHeader}
			if len(frame.Entries) == 0 {
				r.end.Frame--
			}
			r.tail = tail{data[at : at+size], frame.Offset}
			if !yield(frame, nil) {
				return false
			}
			at += size
			again = false
			continue
		case ok:
			return yield(nil, r.damage(s, at, fmt.Sprintf("frame %d with entry %d follows frame %d with entry %d",
				frame.Number, frame.First, r.end.Frame, r.end.Entry))) && false
		}
		later := findFrame(s.Number, data[min(at, len(data)):])
		if later != nil && !again { // a process may have written both while the file was read
			if data, err = r.load(s.Number); err != nil {
				return yield(nil, err) && false
			}
			again = true
			continue
		}
		if later != nil {
			return yield(nil, r.damage(s, at, fmt.Sprintf("frame %d cannot be read, and frame %d follows", r.end.Frame+1,
				later.Number))) && false
		}
		return true
	}
}

// checkSpare returns a *DamageError if a segment has frames behind a header that cannot be read. Old frames have the
// number that it had before.
func (r *Reader) checkSpare(s *found) error {
	data, err := r.load(s.Number)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is being used again under another name
	}
	if err != nil {
		return err
	}
	h, started := parseHeader(data[:min(headerSize, len(data))])
	later := findFrame(s.Number, data)
	if later == nil || started && h.Number == s.Number { // the second was started since it was listed
		return nil
	}
	return r.damage(s, 0, fmt.Sprintf("the header cannot be read, and frame %d follows", later.Number))
}

// load returns all bytes of a segment.
func (r *Reader) load(number uint64) ([]byte, error) {
	f, _, err := files.OpenRegularIn(r.root, segmentName(number))
	if err != nil {
		return nil, fmt.Errorf("open the journal in %s: %w", r.root.Name(), err)
	}
	data, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	return data, nil
}

// follows reports whether a frame is the next one. The first one may have any number: those before were released. An
// entry may have a higher number than the next one, see Open.
func (r *Reader) follows(f *Frame) bool {
	return r.end.Header.Number == 0 || f.Number == r.end.Frame+1 && f.First > r.end.Entry
}

// sync makes durable what the process before may have left unsynced: names, because it was killed in between, and all
// else, because it did not sync.
func (r *Reader) sync() error {
	for _, s := range r.segments {
		f, err := r.root.OpenFile(segmentName(s.Number), os.O_WRONLY|files.Nonblock, 0)
		if err != nil {
			return fmt.Errorf("open the journal in %s: %w", r.root.Name(), err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return &files.SyncError{Path: path(r.root, s.Number), Err: err}
		}
	}
	nothing := func(*os.File) error { return nil }
	return errors.Join(inFolder(r.root, true, nothing), r.rewriteLast())
}

// rewriteLast writes the last frame again. After a failed sync, the memory of the system may hold it and the disk not.
func (r *Reader) rewriteLast() error {
	if r.tail.at == 0 {
		return nil
	}
	f, err := r.root.OpenFile(segmentName(r.end.Header.Number), os.O_WRONLY|files.Nonblock, 0)
	if err != nil {
		return fmt.Errorf("open the journal: %w", err)
	}
	return errors.Join(files.WriteAt(f, r.tail.data, r.tail.at, true), f.Close())
}

func (r *Reader) damage(s *found, at int, reason string) error {
	r.damageAt = at
	return &DamageError{path(r.root, s.Number), int64(at), reason}
}

// findFrame returns the first frame in data behind its first byte, nil if there is none.
func findFrame(segment uint64, data []byte) *Frame {
	for len(data) > 0 {
		data = data[nextFrame(data):]
		if f, _, ok := parseFrame(segment, data); ok {
			return f
		}
	}
	return nil
}

// nextFrame returns where a frame may start in data behind its first byte, len(data) if nowhere.
func nextFrame(data []byte) int {
	if at := bytes.Index(data[1:], []byte(frameStart)); at >= 0 {
		return 1 + at
	}
	return len(data)
}

// Summary describes the journal of a folder.
type Summary struct {
	End
	// Segments is the number of files, also of spare ones.
	Segments int
	// First is the number of the first entry, and Entries how many there are; 0 if there is none.
	First   uint64
	Entries int
}

// Read calls do with the frames of the journal of a folder that have entries, in order, until do fails. Another process
// may write the journal: then Read returns what was written before, and neither a frame that is being written nor a
// segment that is used again is an error. The error is a *DamageError as that of Frames.
func Read(folder string, do func(*Frame) error) (sum Summary, err error) {
	var last uint64 // number of the last entry that do has
	var failed error
	before := new(DamageError)
	for range maxReads {
		sum, err = readOnce(folder, func(f *Frame) error {
			if f.Last() > last {
				last, failed = f.Last(), do(f)
			}
			return failed
		})
		damage, damaged := errors.AsType[*DamageError](err)
		if failed != nil || !damaged && !errors.Is(err, fs.ErrNotExist) {
			break
		}
		if damaged {
			if *damage == *before { // what a writer was about to write is there the second time
				break
			}
			before = damage
		}
	}
	return sum, err
}

// maxReads is how often a journal is read at most while its segments are being used again.
const maxReads = 100

// readOnce is Read without a second try.
func readOnce(folder string, do func(*Frame) error) (sum Summary, err error) {
	r, err := NewReader(folder)
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	sum.Segments = len(r.segments)
	for f, err := range r.Frames() {
		sum.End = r.end
		if err != nil {
			return sum, err
		}
		if len(f.Entries) == 0 {
			continue
		}
		if sum.First == 0 {
			sum.First = f.First
		}
		sum.Entries += len(f.Entries)
		if err := do(f); err != nil {
			return sum, err
		}
	}
	return sum, nil
}
