package stream

import (
	"bytes"
	"context"
	"io"
	"time"
)

// partialDelay is how long a line may stay unfinished before its beginning is sent.
const partialDelay = 100 * time.Millisecond

// Text writes the text form of an operation's stream to w, following the log until the operation ends. offset is the
// byte of the log file at which the log begins; header and <log> are written for every offset.
//
// flush pushes the written bytes to the reader; nil when w does not buffer. It is called after the header, when the
// reader has caught up with the log, after each full piece of 64 KiB, and after the footer. Closing tag and footer are
// one Write and one flush. A write ends inside a character only if the rest of it is more than 100 ms late.
//
// Text returns nil after the footer. When ctx ends it returns its [context.Cause] and writes nothing more: no
// footer. An unfinished line is sent after at most 100 ms, except for a possible start of a tag (see escape.go) at
// its end, which is held back until it is decided; the timing does not change the bytes.
//
// While it waits, Text holds the open log, and a timer if a line is unfinished, but no buffer.
func Text(ctx context.Context, w io.Writer, flush func() error, src Source, offset int64) error {
	f, err := newFollower(src, offset)
	if err != nil {
		return err
	}
	t := &text{follower: f, out: output{w: w, push: flush}}
	defer t.close()
	return t.run(ctx)
}

type text struct {
	*follower
	out     output
	escape  escaper
	partial *time.Timer // exists while a line is unfinished and not sent
	rang    bool        // partial has fired
}

func (t *text) run(ctx context.Context) error {
	header, err := t.waitHeader(ctx, t.idle)
	if err != nil {
		return err
	}
	if err := t.out.send(opening(header)); err != nil {
		return err
	}
	if err := t.readAll(ctx, t.take, t.idle); err != nil {
		return err
	}
	return t.finish()
}

func (t *text) close() {
	t.disarm()
	t.follower.close()
}

func (t *text) idle(ctx context.Context) (err error) {
	t.rang, err = t.wait(ctx, t.partial)
	return err
}

// take sends a piece of the log, unless it ends in an unfinished line that is new.
func (t *text) take(piece []byte, caughtUp bool) error {
	b := piece
	if caughtUp && !t.rang {
		b = b[:bytes.LastIndexByte(b, '\n')+1]
	} else if whole := WholeCharacters(b); whole > 0 && (t.sealed < 0 || t.pos+int64(len(b)) < t.sealed) {
		b = b[:whole] // the rest of a character gets another 100 ms
	}
	if err := t.send(b); err != nil {
		return err
	}
	t.watchPartial(len(b) > 0 || t.rang, len(piece) > len(b))
	return nil
}

// send writes log bytes, escaped, and advances pos.
func (t *text) send(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	t.pos += int64(len(b))
	if t.escape.passes(b) {
		return t.out.send(b)
	}
	safe := scratch.Get().(*[]byte)
	defer giveScratch(safe)
	*safe = t.escape.append((*safe)[:0], b)
	return t.out.send(*safe)
}

// watchPartial maintains the timer: it runs from when the current unfinished line was first seen.
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

// finish writes the end of the log and the footer in one write: a reader never receives only one of them.
func (t *text) finish() error {
	var rest []byte
	open, err := t.openLine()
	if err != nil {
		return err
	}
	if open {
		rest = t.escape.append(rest, []byte("\n"))
	}
	footer, err := footerLines(t.snap.Footer)
	if err != nil {
		return err
	}
	return t.out.send(closing(t.escape.flush(rest), footer))
}
