package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// follower walks the log of an operation from an offset to its sealed end. It belongs to one goroutine.
type follower struct {
	src    Source
	snap   Snapshot
	log    *os.File // nil until it exists
	pos    int64    // the next byte of the log
	sealed int64    // the end of the log, -1 while it is not known
}

func newFollower(src Source, offset int64) (*follower, error) {
	if offset < 0 {
		return nil, fmt.Errorf("follow the log: offset %d: it must not be negative", offset)
	}
	return &follower{src: src, pos: offset, sealed: -1}, nil
}

func (f *follower) close() {
	if f.log != nil {
		_ = f.log.Close() // opened for reading: there is nothing to lose
	}
}

// look takes a new snapshot, until the operation has ended.
func (f *follower) look() error {
	if f.sealed >= 0 {
		return nil
	}
	snap, err := f.src.Snapshot()
	if err != nil {
		return fmt.Errorf("look at the operation: %w", err)
	}
	f.snap = snap
	if snap.Ended {
		if len(snap.Footer) == 0 {
			return errors.New("look at the operation: it has ended but its record has no footer")
		}
		f.sealed = max(snap.LogBytes, 0)
	}
	return nil
}

// waitHeader returns when the snapshot has a header. idle waits for the source to wake the follower.
func (f *follower) waitHeader(ctx context.Context, idle func(context.Context) error) error {
	for {
		if err := f.look(); err != nil {
			return err
		}
		if len(f.snap.Header) > 0 {
			return nil
		}
		if f.sealed >= 0 {
			return errors.New("look at the operation: it has ended but its record has no header")
		}
		if err := idle(ctx); err != nil {
			return err
		}
	}
}

// fill reads the log at pos into buf and takes a snapshot. caughtUp says that there is nothing more to read until the
// source wakes the follower.
//
// The snapshot is taken after the read: if it does not know the end yet, then what was read lies before the end.
// The other way round, a stray write after the seal could reach a live reader and no later one.
func (f *follower) fill(buf []byte) (n int, caughtUp bool, err error) {
	if f.sealed >= 0 {
		want := int(min(int64(len(buf)), max(f.sealed-f.pos, 0)))
		n, err = f.read(buf[:want])
		if n < want && err == nil {
			f.sealed = f.pos + int64(n) // the log lost its end
		}
		return n, false, err
	}
	if n, err = f.read(buf); err != nil {
		return 0, false, err
	}
	if err = f.look(); err != nil {
		return 0, false, err
	}
	if f.sealed >= 0 {
		return int(min(int64(n), max(f.sealed-f.pos, 0))), false, nil
	}
	return n, n < len(buf), nil
}

// read reads what there is, which may be nothing.
func (f *follower) read(buf []byte) (int, error) {
	if f.log == nil {
		log, err := f.src.Log()
		if errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("open the log: %w", err)
		}
		f.log = log
	}
	n, err := f.log.ReadAt(buf, f.pos)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("read the log: %w", err)
	}
	return n, nil
}

// atEnd says that nothing of the log is left.
func (f *follower) atEnd() bool {
	return f.sealed >= 0 && f.pos >= f.sealed
}

// openLine says that the log, all of which was passed, does not end in a newline, which the text form then adds. It is
// false for an offset beyond the end: who asks for that has seen the added newline.
func (f *follower) openLine() (bool, error) {
	if f.log == nil || f.sealed == 0 || f.pos != f.sealed {
		return false, nil
	}
	var last [1]byte
	n, err := f.log.ReadAt(last[:], f.sealed-1)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the end of the log: %w", err)
	}
	return n == 1 && last[0] != '\n', nil
}

// wait returns when the source wakes the follower, when timer fires (rang is then true) or when ctx ends, with its
// cause. A nil timer never fires.
func (f *follower) wait(ctx context.Context, timer *time.Timer) (rang bool, err error) {
	var ring <-chan time.Time
	if timer != nil {
		ring = timer.C
	}
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case _, open := <-f.src.Wake():
		if !open {
			return false, errWakeClosed
		}
		return false, nil
	case <-ring:
		return true, nil
	}
}
