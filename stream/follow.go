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

// follower reads the log of an operation from an offset to its sealed end. It is used by one goroutine.
type follower struct {
	src    Source
	snap   Snapshot
	log    *os.File // nil until it exists
	pos    int64    // the next byte of the log
	sealed int64    // the sealed length of the log, -1 while unknown
}

func newFollower(src Source, offset int64) (*follower, error) {
	if offset < 0 {
		return nil, fmt.Errorf("follow the log: offset %d: it must not be negative", offset)
	}
	return &follower{src: src, pos: offset, sealed: -1}, nil
}

func (f *follower) close() {
	if f.log != nil {
		_ = f.log.Close() // opened for reading only
	}
}

// refresh takes a new snapshot, unless the operation has ended.
func (f *follower) refresh() error {
	if f.sealed >= 0 {
		return nil
	}
	snap, err := f.src.Snapshot()
	if err != nil {
		return fmt.Errorf("read the operation: %w", err)
	}
	f.snap = snap
	if snap.Ended {
		if len(snap.Footer) == 0 {
			return errors.New("read the operation: it has ended but its record has no footer")
		}
		f.sealed = max(snap.LogBytes, 0)
	}
	return nil
}

// waitHeader returns the header, on one line, when the snapshot has one. It calls idle to wait for the source's next
// wake.
func (f *follower) waitHeader(ctx context.Context, idle func(context.Context) error) ([]byte, error) {
	for {
		if err := f.refresh(); err != nil {
			return nil, err
		}
		if len(f.snap.Header) > 0 {
			return headerLine(f.snap.Header)
		}
		if f.sealed >= 0 {
			return nil, errors.New("read the operation: it has ended but its record has no header")
		}
		if err := idle(ctx); err != nil {
			return nil, err
		}
	}
}

// fill reads the log at pos into buf and takes a snapshot. caughtUp means that there is nothing to read until the
// source wakes the follower.
//
// The snapshot is taken after the read: if it shows no end, the bytes that were read are before the end. The other way
// round, a stray write after the seal could reach a live reader but no later one.
func (f *follower) fill(buf []byte) (n int, caughtUp bool, err error) {
	if f.sealed >= 0 {
		want := int(min(int64(len(buf)), max(f.sealed-f.pos, 0)))
		n, err = f.read(buf[:want])
		if n < want && err == nil {
			f.sealed = f.pos + int64(n) // the log is shorter than its sealed length
		}
		return n, false, err
	}
	if n, err = f.read(buf); err != nil {
		return 0, false, err
	}
	if err = f.refresh(); err != nil {
		return 0, false, err
	}
	if f.sealed >= 0 {
		return int(min(int64(n), max(f.sealed-f.pos, 0))), false, nil
	}
	return n, n < len(buf), nil
}

// read reads the available bytes, possibly none.
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

// readAll passes the log to take, piece by piece, until its sealed end. It calls idle to wait for more. take moves pos
// over what it has used.
func (f *follower) readAll(ctx context.Context, take func(piece []byte, caughtUp bool) error,
	idle func(context.Context) error,
) error {
	for {
		if err := f.catchUp(ctx, take); err != nil || f.atEnd() {
			return err
		}
		if err := idle(ctx); err != nil {
			return err
		}
	}
}

// catchUp takes pieces until there is no more to read or the end is reached.
func (f *follower) catchUp(ctx context.Context, take func(piece []byte, caughtUp bool) error) error {
	buf := pieces.Get().(*[pieceSize]byte)
	defer pieces.Put(buf)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, caughtUp, err := f.fill(buf[:])
		if err != nil {
			return err
		}
		if err := take(buf[:n], caughtUp); err != nil || caughtUp || f.atEnd() {
			return err
		}
	}
}

// atEnd reports whether the whole log has been read.
func (f *follower) atEnd() bool {
	return f.sealed >= 0 && f.pos >= f.sealed
}

// openLine reports whether the log, read to its end, does not end in a newline, so that the text form adds one. It is
// false for an offset beyond the end: such a reader has already received the added newline.
func (f *follower) openLine() (bool, error) {
	if f.log == nil || f.sealed == 0 || f.pos != f.sealed {
		return false, nil
	}
	open, err := endsInLine(f.log, f.sealed)
	if err != nil {
		return false, fmt.Errorf("read the end of the log: %w", err)
	}
	return open, nil
}

// endsInLine reports whether the first size bytes of a log, at least one, end in the middle of a line.
func endsInLine(log *os.File, size int64) (bool, error) {
	var last [1]byte
	n, err := log.ReadAt(last[:], size-1)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return n == 1 && last[0] != '\n', nil
}

// wait returns when the source wakes the follower, when timer fires (rang is then true), or with the cause of ctx when
// that ends. A nil timer never fires.
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

// WaitFooter waits until the operation has ended and returns its footer, laid out as in the stream, without a final
// newline. When ctx ends it returns its [context.Cause].
func WaitFooter(ctx context.Context, src Source) ([]byte, error) {
	f, err := newFollower(src, 0)
	if err != nil {
		return nil, err
	}
	for {
		if err := f.refresh(); err != nil {
			return nil, err
		}
		if f.sealed >= 0 {
			return footerLines(f.snap.Footer)
		}
		if _, err := f.wait(ctx, nil); err != nil {
			return nil, err
		}
	}
}
