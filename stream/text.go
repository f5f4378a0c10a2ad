package stream

import (
	"bytes"
	"context"
	"io"
	"time"
)

// partialDelay is how long a line may stay unfinished before what there is of it is sent.
const partialDelay = 100 * time.Millisecond

// Text writes the text form of an operation's stream to w, following the log until the operation ends. offset is the
// byte of the log file at which the log begins; header and <log> are written for every offset.
//
// flush pushes what was written to the reader; nil when w does not buffer. It is called after the header, when the
// reader has caught up with the log, after each full piece of 64 KiB, and after the footer. Closing tag and footer are
// one Write and one flush.
//
// Text returns nil after the footer. When ctx ends it returns [context.Cause] of it and writes nothing more: no
// footer. An unfinished line is sent after at most 100 ms, apart from an end that may yet become a tag (see
// [Escaper]), which is held back until that is decided; the bytes are the same whatever the timing was.
//
// While it waits, Text holds the open log, and a timer if a line is unfinished, but no buffer.
func Text(ctx context.Context, w io.Writer, flush func() error, src Source, offset int64) error {
	f, err := newFollower(src, offset)
	if err != nil {
		return err
	}
	defer f.close()
	t := &text{follower: f, out: output{w: w, push: flush}}
	defer t.disarm()
	return t.run(ctx)
}

type text struct {
	*follower
	out     output
	escape  Escaper
	partial *time.Timer // exists while a line is unfinished and not sent
	rang    bool        // the unfinished line has waited long enough
}

func (t *text) run(ctx context.Context) error {
	if err := t.waitHeader(ctx, t.idle); err != nil {
		return err
	}
	start, err := head(t.snap.Header)
	if err != nil {
		return err
	}
	if err := t.out.write(start); err != nil {
		return err
	}
	if err := t.out.flush(); err != nil {
		return err
	}
	for {
		if err := t.catchUp(ctx); err != nil {
			return err
		}
		if t.atEnd() {
			return t.finish()
		}
		if err := t.idle(ctx); err != nil {
			return err
		}
	}
}

func (t *text) idle(ctx context.Context) (err error) {
	t.rang, err = t.wait(ctx, t.partial)
	return err
}

// catchUp sends what the log has, and returns when there is no more to read or the end is reached.
func (t *text) catchUp(ctx context.Context) error {
	buf := pieces.Get().(*[pieceSize]byte)
	defer pieces.Put(buf)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, caughtUp, err := t.fill(buf[:])
		if err != nil {
			return err
		}
		b := buf[:n]
		if caughtUp && !t.rang {
			b = b[:bytes.LastIndexByte(b, '\n')+1]
		}
		if err := t.send(b); err != nil {
			return err
		}
		t.watchPartial(len(b) > 0 || t.rang, n > len(b))
		if caughtUp || t.atEnd() {
			return nil
		}
	}
}

// send writes log bytes, escaped, and passes them.
func (t *text) send(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	t.pos += int64(len(b))
	if t.escape.filter.passes(b) {
		if err := t.out.write(b); err != nil {
			return err
		}
		return t.out.flush()
	}
	safe := scratch.Get().(*[]byte)
	defer giveScratch(safe)
	*safe = t.escape.Append((*safe)[:0], b)
	if err := t.out.write(*safe); err != nil {
		return err
	}
	return t.out.flush()
}

// watchPartial keeps the timer: its time counts from when the present unfinished line was first seen.
func (t *text) watchPartial(moved, unfinished bool) {
	if moved || !unfinished {
		t.disarm()
	}
	if unfinished && t.partial == nil {
		t.partial = time.NewTimer(partialDelay)
	}
}

func (t *text) disarm() {
	if t.partial != nil {
		t.partial.Stop()
		t.partial = nil
	}
	t.rang = false
}

// finish writes the end of the log and the footer in one write: a reader never sees one without the other.
func (t *text) finish() error {
	var rest []byte
	open, err := t.openLine()
	if err != nil {
		return err
	}
	if open {
		rest = t.escape.Append(rest, []byte("\n"))
	}
	rest = t.escape.Flush(rest)
	end, err := tail(rest, t.snap.Footer)
	if err != nil {
		return err
	}
	if err := t.out.write(end); err != nil {
		return err
	}
	return t.out.flush()
}
