package stream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Heartbeat is the usual time between two comments on an idle stream of events. It keeps proxies from closing it.
const Heartbeat = 15 * time.Second

// Names of the events.
const (
	EventStart    = "start_json" // the header; the first event of every connection
	EventState    = "state_json" // {"state": "paused"}, with "stalled_at" while the work gives no sign of life
	EventStep     = "step"       // a step of the operation: its name, its place, its status
	EventLog      = "log"        // whole lines of the log
	EventProgress = "progress"   // the progress as it is now
	EventEnd      = "end_json"   // the footer; the last event
)

// Events writes an operation's stream to w as server-sent events (WHATWG HTML, section 9.2), following the log until
// the operation ends. offset is the byte of the log file at which the log begins: zero, or the Last-Event-ID of a
// reader that comes back. flush is as in [Text]; heartbeat is the time between two comments while nothing is sent,
// none when it is not positive.
//
// The id of every event is the offset in the log behind what was sent so far: a reader that comes back with it gets
// exactly the rest, after start_json. JSON data is on one line.
//
// A log event holds whole lines, never escaped. Its data is the lines joined by newlines, so a reader appends one
// newline to the data of each log event and joins them without looking. LF, CR LF and a CR alone all end a line and
// all arrive as LF, because the format cannot carry a CR; so a log cannot forge a field. A line that is not finished
// is not sent until it is, or until the log is sealed: only the text form shows it earlier. A line longer than 64 KiB
// is written as it comes, without being kept in memory; its event ends with it, and until then no other event, no
// heartbeat and no id can come between.
//
// state_json says what the state is after start_json, and every change of it, also that the work stalls; progress likewise. Both are left out
// when they are not known, changes that follow each other quickly may be merged, and a progress that is not JSON is
// left out. How an operation ended is in end_json alone, so all reads of an ended operation give the same bytes.
//
// step says of each step of an operation with steps what its status is, first of all of them, in their order, and then of each that changes.
// They are left out like state_json.
//
// Events returns nil after end_json. When ctx ends it returns [context.Cause] of it; if that is [ErrShutdown] it
// writes the comment ": shutting down" before.
func Events(ctx context.Context, w io.Writer, flush func() error, src Source, offset int64, heartbeat time.Duration) error {
	f, err := newFollower(src, offset)
	if err != nil {
		return err
	}
	defer f.close()
	e := &events{follower: f, out: output{w: w, push: flush}, heartbeat: heartbeat}
	defer e.still()
	err = e.run(ctx)
	if errors.Is(err, ErrShutdown) && ctx.Err() != nil {
		if failed := e.farewell(); failed != nil {
			return failed
		}
	}
	return err
}

type events struct {
	*follower
	out       output
	heartbeat time.Duration
	beat      *time.Timer // made by the first wait, runs since the last thing sent
	busy      bool        // something was sent since beat was set
	state     shownState
	progress  []byte
	steps     [][]byte // as they were sent
	open      bool     // a log event has begun and its last line is not finished
}

func (e *events) run(ctx context.Context) error {
	if err := e.waitHeader(ctx, e.idle); err != nil {
		return err
	}
	line, err := headerLine(e.snap.Header)
	if err != nil {
		return err
	}
	if err := e.send(EventStart, line); err != nil {
		return err
	}
	for {
		if err := e.catchUp(ctx); err != nil {
			return err
		}
		if e.atEnd() {
			break
		}
		if err := e.idle(ctx); err != nil {
			return err
		}
	}
	if err := e.sendSteps(); err != nil { // as they ended, also to who comes late
		return err
	}
	line, err = oneLine(e.snap.Footer)
	if err != nil {
		return err
	}
	return e.send(EventEnd, line)
}

// catchUp sends what is new, and returns when there is no more to read or the end is reached.
func (e *events) catchUp(ctx context.Context) error {
	buf := pieces.Get().(*[pieceSize]byte)
	defer pieces.Put(buf)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, caughtUp, err := e.fill(buf[:])
		if err != nil {
			return err
		}
		if err := e.sendLog(buf[:n]); err != nil {
			return err
		}
		if err := e.sendChanges(); err != nil {
			return err
		}
		if caughtUp || e.atEnd() {
			return nil
		}
	}
}

// sendLog sends the whole lines that b, read at pos, begins with, or the middle of a line too long for one piece.
func (e *events) sendLog(b []byte) error {
	final := e.sealed >= 0 && e.pos+int64(len(b)) >= e.sealed
	full := len(b) == pieceSize
	whole := lastLineEnd(b)
	if final {
		whole = len(b)
	}
	middle := false
	if whole == 0 && (e.open || full) && !final {
		// A CR at the end may be half of a line end: it stays for the next piece.
		whole = len(bytes.TrimSuffix(b, []byte("\r")))
		middle = true
	}
	if whole == 0 && !(final && e.open) {
		return nil
	}
	out := takeBuffered(e.out.w)
	defer giveBuffered(out)
	if !e.open {
		out.WriteString("event: " + EventLog + "\n")
	}
	inLine := writeLines(out, b[:whole], e.open)
	e.pos += int64(whole)
	e.open = middle
	if !middle {
		if inLine {
			out.WriteByte('\n')
		}
		writeID(out, e.pos)
	}
	return e.flushed(out)
}

// lastLineEnd returns the index behind the last line end of which b leaves no doubt.
func lastLineEnd(b []byte) int {
	lf := bytes.LastIndexByte(b, '\n') + 1
	if rest := b[lf:]; len(rest) > 1 {
		return lf + bytes.LastIndexByte(rest[:len(rest)-1], '\r') + 1
	}
	return lf
}

// writeLines writes each line of b as one data field. inLine says that the first one continues a field; the answer
// says that the last one has no end yet. Errors are kept by out until it is flushed.
func writeLines(out *bufio.Writer, b []byte, inLine bool) bool {
	lf := -1
	for at := 0; at < len(b); {
		if !inLine {
			out.WriteString("data: ")
		}
		if lf < at { // looked for once for each LF, or many CRs would make this quadratic
			lf = len(b)
			if i := bytes.IndexByte(b[at:], '\n'); i >= 0 {
				lf = at + i
			}
		}
		end, next := lf, lf+1
		if i := bytes.IndexByte(b[at:lf], '\r'); i >= 0 {
			end, next = at+i, at+i+1
			if next == lf {
				next++
			}
		}
		out.Write(b[at:end])
		if end == len(b) {
			return true
		}
		out.WriteByte('\n')
		inLine = false
		at = next
	}
	return inLine
}

// sendChanges sends state and progress if they are new. A line in the open is finished first; nothing is sent once
// the operation has ended.
func (e *events) sendChanges() error {
	if e.open || e.sealed >= 0 {
		return nil
	}
	if state := (shownState{e.snap.State, e.snap.StalledAt}); state != e.state && state.State != "" {
		e.state = state
		line, err := json.Marshal(state)
		if err != nil {
			return fmt.Errorf("send the state: %w", err)
		}
		if line, err = oneLine(line); err != nil {
			return fmt.Errorf("send the state: %w", err)
		}
		if err := e.send(EventState, line); err != nil {
			return err
		}
	}
	if err := e.sendSteps(); err != nil {
		return err
	}
	if len(e.snap.Progress) > 0 && !bytes.Equal(e.snap.Progress, e.progress) {
		e.progress = e.snap.Progress
		if line, err := oneLine(e.progress); err == nil {
			return e.send(EventProgress, line)
		}
	}
	return nil
}

// sendSteps sends the steps that are not as they were sent.
func (e *events) sendSteps() error {
	for i, step := range e.snap.Steps {
		if i < len(e.steps) && bytes.Equal(step, e.steps[i]) {
			continue
		}
		line, err := oneLine(step)
		if err != nil {
			continue // it is no JSON, as a progress may be
		}
		if err := e.send(EventStep, line); err != nil {
			return err
		}
	}
	e.steps = e.snap.Steps
	return nil
}

// shownState is the data of state_json.
type shownState struct {
	State     string `json:"state"`
	StalledAt string `json:"stalled_at,omitempty"`
}

// send writes one event whose data is one line.
func (e *events) send(event string, data []byte) error {
	out := takeBuffered(e.out.w)
	defer giveBuffered(out)
	out.WriteString("event: ")
	out.WriteString(event)
	out.WriteString("\ndata: ")
	out.Write(data)
	out.WriteByte('\n')
	writeID(out, e.pos)
	return e.flushed(out)
}

func writeID(out *bufio.Writer, pos int64) {
	out.WriteString("id: ")
	out.Write(strconv.AppendInt(out.AvailableBuffer(), pos, 10))
	out.WriteString("\n\n")
}

func (e *events) flushed(out *bufio.Writer) error {
	e.busy = true
	if err := out.Flush(); err != nil {
		return sendError(err)
	}
	return e.out.flush()
}

// idle waits until there may be something new, and writes a comment whenever nothing was sent for a heartbeat.
func (e *events) idle(ctx context.Context) error {
	for {
		rang, err := e.wait(ctx, e.runningBeat())
		if err != nil || !rang {
			return err
		}
		if err := e.comment(": idle\n\n"); err != nil {
			return err
		}
	}
}

// runningBeat returns the timer of the next heartbeat, nil while none can be sent.
func (e *events) runningBeat() *time.Timer {
	if e.heartbeat <= 0 || e.open {
		return nil
	}
	if e.beat == nil {
		e.beat = time.NewTimer(e.heartbeat)
	} else if e.busy {
		e.beat.Reset(e.heartbeat)
	}
	e.busy = false
	return e.beat
}

func (e *events) still() {
	if e.beat != nil {
		e.beat.Stop()
	}
}

// farewell writes the last comment. In the middle of a line there is no empty line behind it, so that the reader
// throws the unfinished event away and asks for it again.
func (e *events) farewell() error {
	if e.open {
		return e.comment("\n: shutting down\n")
	}
	return e.comment(": shutting down\n\n")
}

func (e *events) comment(text string) error {
	e.busy = true
	if err := e.out.write([]byte(text)); err != nil {
		return err
	}
	return e.out.flush()
}
