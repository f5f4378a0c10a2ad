package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jobdir/jobdir/statefs/files"
)

// Mirror copies a journal while another process may write it. Segments that are used again stay in the copy. So the
// copy has everything from the first call of Update on, if no whole segment is filled and used again between two calls:
// the mirror keeps a segment open until it is closed and copied, also if it is removed. Otherwise Read of the copy
// finds the gap. A Mirror is not safe for concurrent use.
type Mirror struct {
	from     *os.Root
	to       string
	segments map[uint64]*copied
}

// copied is a segment that a mirror has, or has a part of.
type copied struct {
	file   *os.File // nil once everything is copied
	header []byte
	at     int64 // end of the last frame that is copied; 0 if not even the header is
}

// NewMirror makes a mirror of one folder in another, which is empty. The caller closes it.
func NewMirror(from, to string) (*Mirror, error) {
	root, err := os.OpenRoot(from)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	return &Mirror{root, to, make(map[uint64]*copied)}, nil
}

// Close closes what is open. The copy stays.
func (m *Mirror) Close() error {
	errs := []error{m.from.Close()}
	for _, s := range m.segments {
		if s.file != nil {
			errs = append(errs, s.file.Close())
		}
	}
	return errors.Join(errs...)
}

// Update copies the frames that were written since the last call.
func (m *Mirror) Update() error {
	entries, err := fs.ReadDir(m.from.FS(), ".")
	if err != nil {
		return fmt.Errorf("list the journal %s: %w", m.from.Name(), err)
	}
	for _, entry := range entries {
		if _, ok := parseName(entry.Name()); !ok {
			continue
		}
		if err := m.find(entry.Name()); err != nil {
			return fmt.Errorf("copy the journal: %w", err)
		}
	}
	newest := uint64(0)
	for number := range m.segments {
		newest = max(newest, number)
	}
	for number, s := range m.segments {
		if s.file == nil {
			continue
		}
		if err := m.update(number, s); err != nil {
			return fmt.Errorf("copy the journal: %w", err)
		}
		if number < newest { // it was closed before the newest one was started
			if err := s.file.Close(); err != nil {
				return fmt.Errorf("copy the journal: %w", err)
			}
			s.file = nil
		}
	}
	return nil
}

// find opens a segment, unless that is known. A spare one has the number of its use before in its header.
func (m *Mirror) find(name string) error {
	f, _, err := files.OpenRegularIn(m.from, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has just got another name
	}
	if err != nil {
		return err
	}
	header := make([]byte, headerSize)
	_, err = f.ReadAt(header, 0)
	if h, ok := parseHeader(header); err == nil && ok && m.segments[h.Number] == nil {
		m.segments[h.Number] = &copied{file: f, header: header}
		return nil
	}
	return errors.Join(ignoreEOF(err), f.Close())
}

// update copies what is new in one segment.
func (m *Mirror) update(number uint64, s *copied) error {
	at := max(s.at, headerSize)
	frames, err := framesAt(s.file, number, at)
	if err != nil || s.at > 0 && len(frames) == 0 {
		return err
	}
	to, err := os.OpenFile(filepath.Join(m.to, segmentName(number)), os.O_WRONLY|os.O_CREATE, files.Mode)
	if err != nil {
		return err
	}
	if s.at == 0 {
		_, err = to.WriteAt(s.header, 0)
	}
	if err == nil {
		_, err = to.WriteAt(frames, at)
	}
	s.at = at + int64(len(frames))
	return errors.Join(err, to.Close())
}

// framesAt returns the whole frames of a segment from a place on, up to the last one with entries: the next frame may
// take the place of those without.
func framesAt(f *os.File, number uint64, at int64) ([]byte, error) {
	for size := 64 << 10; ; size *= 2 {
		data := make([]byte, size)
		n, err := f.ReadAt(data, at)
		if ignoreEOF(err) != nil {
			return nil, err
		}
		data = data[:n]
		end, whole := 0, 0
		for {
			frame, length, ok := parseFrame(number, data[end:])
			if !ok {
				break
			}
			if end += length; len(frame.Entries) > 0 {
				whole = end
			}
		}
		if rest := data[end:]; errors.Is(err, io.EOF) || len(rest) > 0 && !bytes.HasPrefix(rest, []byte(frameStart)) &&
			len(rest) >= len(frameStart) {
			return data[:whole], nil
		}
	}
}
