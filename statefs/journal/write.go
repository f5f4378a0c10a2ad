package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/notify"
)

// write writes one frame at a time.
func (j *Journal) write(ctx context.Context) error {
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	for {
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
			return nil
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
	h.viewed, h.checkpoint = j.viewed, j.checkpoint
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
		j.current.last = h.first + uint64(h.count) - 1
		j.bytes -= int64(len(buf))
	}
	j.releaseLocked(h.checkpoint)
	return nil
}

// writeAt writes into the current segment. It waits while the disk is full: not every file system overwrites in place.
func (j *Journal) writeAt(ctx context.Context, data []byte, at int64, durable bool) error {
	for full := false; ; full = true {
		err := files.WriteAt(j.file, data, at, durable)
		if full || files.DiskFull(err) {
			j.setLack(err)
		}
		if !files.DiskFull(err) {
			return err
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			return err
		}
	}
}

// writeCheckpoint writes a frame without entries if there is a new checkpoint. Before the first frame there is no
// segment to write it to; the header of that frame has it.
func (j *Journal) writeCheckpoint(ctx context.Context) error {
	j.mu.Lock()
	due := j.checkpoint > j.released
	first := j.next
	if len(j.pending) > 0 {
		first = j.pending[0].first
	}
	j.mu.Unlock()
	if !due || j.file == nil {
		return nil
	}
	return j.writeFrame(ctx, make([]byte, frameHeaderSize), frameHeader{number: j.frame + 1, first: first}, j.o.Durable)
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
	current, h := j.current, frameHeader{number: j.frame + 1, first: j.next, viewed: j.viewed, checkpoint: j.released}
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
	f, err := j.root.OpenFile(segmentName(next.number), os.O_RDWR|files.Nonblock, 0)
	if err != nil {
		return fmt.Errorf("open the journal: %w", err)
	}
	if j.file != nil {
		err = j.file.Close()
	}
	j.file = f
	header := SegmentHeader{next.number, j.o.Origin, time.Now()}
	if err = errors.Join(err, j.writeAt(ctx, header.encode(), 0, j.o.Durable)); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.current.number != 0 {
		j.closed = append(j.closed, j.current)
		j.filled++
	}
	next.at = headerSize
	j.current = next
	return nil
}

// takeSpare waits for a spare segment that is large enough. A frame that is larger than a segment gets one of its own.
func (j *Journal) takeSpare(ctx context.Context, size int64) (segment, error) {
	for {
		s, changed := j.findSpare(size)
		if s.number != 0 {
			return s, nil
		}
		select {
		case <-changed:
		case <-j.work: // a checkpoint may free a segment
			if err := j.writeCheckpoint(ctx); err != nil {
				return segment{}, err
			}
		case <-ctx.Done():
			return segment{}, context.Cause(ctx)
		}
	}
}

// findSpare takes a spare segment. If none is large enough, it asks for one, and changed is closed when there may be.
func (j *Journal) findSpare(size int64) (s segment, changed <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wanted = size
	if i := slices.IndexFunc(j.spare, func(s segment) bool { return s.size >= size }); i >= 0 {
		s, j.wanted = j.spare[i], 0
		j.free = append(j.free, j.spare[:i]...) // their numbers are passed over
		j.spare = slices.Delete(j.spare, 0, i+1)
	}
	notify.Wake(j.demand)
	return s, j.changed
}
