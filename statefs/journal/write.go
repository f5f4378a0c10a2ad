package journal

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
	"github.com/jobdir/jobdir/statefs/notify"
)

// write writes one frame at a time.
func (j *Journal) write(ctx context.Context) error {
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	for {
		ended := ctx.Err() != nil // asked first: what was appended before its end is written
		if err := j.writeCheckpoint(ctx); err != nil {
			return err
		}
		if c := j.take(); c != nil {
			err := j.commit(ctx, c)
			c.err, c.buf = err, nil
			close(c.done)
			if err != nil {
				return err
			}
			if j.o.Committed != nil {
				j.o.Committed(c.first + uint64(c.count) - 1)
			}
			continue
		}
		if ended {
			return nil
		}
		if idle.Stop(); j.hasViewed() {
			idle.Reset(idleAfter)
		}
		select {
		case <-j.work:
		case <-idle.C:
			if err := j.writeViewed(); err != nil {
				return err
			}
		case <-ctx.Done():
		}
	}
}

func (j *Journal) take() *Commit {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.pending) == 0 {
		return nil
	}
	c := j.pending[0]
	j.pending = j.pending[1:]
	return c
}

// commit writes a frame.
func (j *Journal) commit(ctx context.Context, c *Commit) error {
	if bytes.Count(c.buf[frameHeaderSize:], newline) != c.count {
		return errors.New("an entry for the journal has a line end") // a Reader would refuse the frame, and all behind it
	}
	for size := int64(len(c.buf)); !j.fits(size); {
		if err := j.advance(ctx, size); err != nil {
			return err
		}
	}
	return j.writeFrame(ctx, c.buf, frameHeader{number: j.frame + 1, first: c.first, count: c.count}, j.o.Durable)
}

// fits reports whether a frame fits into the current segment, and another one without entries.
func (j *Journal) fits(size int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.current.number != 0 && j.current.at+size+frameHeaderSize <= j.current.size
}

// writeFrame completes the header of a frame and writes it behind the last one.
func (j *Journal) writeFrame(ctx context.Context, buf []byte, h frameHeader, durable bool) error {
	j.mu.Lock()
	number, at := j.current.number, j.current.at
	last := h.first + uint64(h.count) - 1
	h.viewed, h.checkpoint = min(j.viewed, last), min(j.checkpoint, last)
	j.mu.Unlock()
	seal(buf, number, h)
	if err := j.writeAt(ctx, buf, at, durable); err != nil {
		return err
	}
	j.frame += uint64(min(1, h.count))
	j.mu.Lock()
	defer j.mu.Unlock()
	j.noted = h.viewed
	if h.count > 0 || at+2*frameHeaderSize <= j.current.size { // so that there always is room for a checkpoint
		j.current.at += int64(len(buf))
	}
	if h.count > 0 {
		j.unwritten = h.first + uint64(h.count)
		j.current.last = j.unwritten - 1
		j.bytes -= int64(len(buf))
	}
	j.releaseLocked(h.checkpoint)
	return nil
}

// writeAt writes into the current segment. It waits while the disk is full: not every file system overwrites in place.
func (j *Journal) writeAt(ctx context.Context, data []byte, at int64, durable bool) error {
	return j.retryWhileExhausted(ctx, func() error { return files.WriteAt(j.file, data, at, durable) })
}

// retryWhileExhausted tries again while the disk is full, or the process may open no more files. When ctx has ended
// that is an error.
func (j *Journal) retryWhileExhausted(ctx context.Context, try func() error) error {
	for failed := false; ; failed = true {
		err := try()
		exhausted := files.DiskFull(err) || machine.OutOfFiles(err)
		switch {
		case exhausted:
			j.setLack(&j.blocked, err)
		case failed:
			j.setLack(&j.blocked, nil)
		}
		if !exhausted {
			return err
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			return &FullError{j.root.Name(), err}
		}
	}
}

// writeCheckpoint writes a frame without entries if there is a new checkpoint. Before the first frame there is no
// segment to write it to; the header of that frame has it.
func (j *Journal) writeCheckpoint(ctx context.Context) error {
	j.mu.Lock()
	due, h := min(j.checkpoint, j.unwritten-1) > j.released, frameHeader{number: j.frame + 1, first: j.unwritten}
	j.mu.Unlock()
	if !due || j.file == nil {
		return nil
	}
	return j.writeFrame(ctx, make([]byte, frameHeaderSize), h, j.o.Durable)
}

// hasViewed reports whether more was viewed than the last frame says.
func (j *Journal) hasViewed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.current.number != 0 && j.viewed != j.noted
}

// writeViewed records what was viewed in a frame without entries. It is not synced, and the next frame takes its place.
func (j *Journal) writeViewed() error {
	j.mu.Lock()
	current, h := j.current, frameHeader{number: j.frame + 1, first: j.unwritten, viewed: j.viewed, checkpoint: j.released}
	j.noted = j.viewed
	j.mu.Unlock()
	buf := make([]byte, frameHeaderSize)
	seal(buf, current.number, h)
	if err := files.WriteAt(j.file, buf, current.at, false); err != nil && !files.DiskFull(err) {
		return err
	}
	return nil
}

// releaseLocked frees the closed segments up to a checkpoint that is on the disk.
func (j *Journal) releaseLocked(checkpoint uint64) {
	if checkpoint == j.released {
		return
	}
	j.released = checkpoint
	for len(j.closed) > 0 && j.closed[0].last <= checkpoint {
		j.free = append(j.free, j.closed[0])
		j.closed = j.closed[1:]
	}
	j.keep, j.filled = max(1, j.filled), 0
	notify.Wake(j.demand)
}

// advance closes the current segment and starts the next one, which has room for a frame of a size.
func (j *Journal) advance(ctx context.Context, size int64) error {
	next, err := j.takeSpare(ctx, headerSize+size+frameHeaderSize)
	if err != nil {
		return err
	}
	if err := j.closeFile(); err != nil { // first, so that its descriptor is free
		return err
	}
	err = j.retryWhileExhausted(ctx, func() (err error) {
		j.file, err = j.root.OpenFile(segmentName(next.number), os.O_RDWR|files.Nonblock, 0)
		if err != nil {
			return &fs.PathError{Op: "open", Path: path(j.root, next.number), Err: errors.Unwrap(err)} // with the folder
		}
		return nil
	})
	if err != nil {
		return err
	}
	header := SegmentHeader{next.number, j.o.Origin, time.Now()}
	if err = j.writeAt(ctx, header.encode(), 0, j.o.Durable); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.current.number != 0 {
		j.closed = append(j.closed, j.current)
		j.filled++
	}
	next.at = headerSize
	j.current, j.taken = next, segment{}
	return nil
}

// closeFile closes the file of the current segment, if one is open.
func (j *Journal) closeFile() error {
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	return err
}

// takeSpare waits for a spare segment that is large enough. A frame that is larger than a segment gets one of its own.
// After a second, and after the end of ctx, it waits for a segment that can be made, also beyond MaxSegments: the next
// checkpoint may wait for the very frame that needs the segment.
func (j *Journal) takeSpare(ctx context.Context, size int64) (segment, error) {
	ended, ending := ctx.Done(), false
	late, beyond := time.After(retryAfter), false
	for {
		s, changed, lack := j.findSpare(size, ending || beyond)
		switch {
		case s.number != 0:
			return s, nil
		case lack != nil && ending:
			return segment{}, &FullError{j.root.Name(), lack}
		}
		select {
		case <-changed:
		case <-j.work: // a checkpoint may free a segment
			if err := j.writeCheckpoint(ctx); err != nil {
				return segment{}, err
			}
		case <-late:
			beyond = true
		case <-ended:
			ended, ending = nil, true
		}
	}
}

// findSpare takes a spare segment. If none is large enough, it asks for one, and changed is closed when there may be.
// lack is why the preparer fails to make one.
func (j *Journal) findSpare(size int64, ending bool) (s segment, changed <-chan struct{}, lack error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wanted, j.ending = size, ending
	if i := slices.IndexFunc(j.spare, func(s segment) bool { return s.size >= size }); i >= 0 {
		s, j.wanted = j.spare[i], 0
		j.taken = s
		j.free = append(j.free, j.spare[:i]...) // their numbers are passed over
		j.spare = slices.Delete(j.spare, 0, i+1)
	}
	notify.Wake(j.demand)
	return s, j.changed, j.lack
}
