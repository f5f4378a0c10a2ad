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
	"unicode/utf8"
)

// Heartbeat is the usual interval of comments on an idle event stream. They keep proxies from closing it.
const Heartbeat = 15 * time.Second

// Names of the events.
const (
	EventStart    = "start_json" // the header; the first event of every connection
	EventState    = "state_json" // {"state": "paused"}, with "stalled_at" while the work gives no signs of life
	EventStep     = "step"       // a step of the operation: its name, its place, its status
	EventLog      = "log"        // whole lines of the log
	EventProgress = "progress"   // the progress as it is now
	EventEnd      = "end_json"   // the footer; the last event
)

// Events writes an operation's stream to w as server-sent events (WHATWG HTML, section 9.2), following the log until
// the operation ends. offset is the byte of the log file at which the log begins: zero, or the Last-Event-ID of a
// reconnecting reader. flush is as in [Text]; heartbeat is the interval of comments while nothing is sent, none if
// it is not positive.
//
// The id of every event is the log offset after everything sent so far: a reader that reconnects with it gets exactly
// the rest, after start_json. JSON data is on one line.
//
// A log event contains whole lines, never escaped. Its data is the lines joined by newlines, so a reader appends one
// newline to the data of each log event and concatenates them. LF, CR LF and a lone CR all end a line and all arrive as
// LF, because the format cannot carry a CR; so a log cannot forge a field. An unfinished line is not sent until it is
// finished or the log is sealed: only the text form shows it earlier. A line longer than 64 KiB is written as it
// arrives, without being kept in memory; its event ends with the line, and until then no other event, heartbeat or id
// is sent.
//
// state_json contains the state: directly after start_json, after every change, also when the work stalls, and directly
// before end_json; the stream of an ended operation has it twice. It is omitted if the state is unknown. progress is
// sent whenever it changes. Changes in quick succession may be merged, and a progress that is not JSON is omitted. All
// reads of an ended operation give the same bytes. The format is UTF-8: each byte of the log that is not valid UTF-8
// becomes U+FFFD.
//
// step contains the status of one step: first one event for each step, in order, and then one for each step that
// changes. They are omitted if the steps are unknown.
//
// Events returns nil after end_json. When ctx ends it returns its [context.Cause]; if that is [ErrShutdown] it writes
// the comment ": shutting down" before.
func Events(ctx context.Context, w io.Writer, flush func() error, src Source, offset int64,
	heartbeat time.Duration,
) error {
	f, err := newFollower(src, offset)
	if err != nil {
		return err
	}
	defer f.close()
	e := &events{follower: f, out: output{w: w, push: flush}, heartbeat: heartbeat}
	defer e.stopHeartbeat()
	err = e.run(ctx)
	if errors.Is(err, ErrShutdown) && ctx.Err() != nil {
		if failed := e.shutdownComment(); failed != nil {
			return failed
		}
	}
	return err
}

type events struct {
	*follower
	out       output
	heartbeat time.Duration
	beat      *time.Timer // made by the first wait; runs since the last send
	busy      bool        // something was sent since beat was set
	state     sentState
	progress  []byte
	steps     [][]byte // as last sent
	open      bool     // a log event has begun and its last line is not finished
}

func (e *events) run(ctx context.Context) error {
	line, err := e.waitHeader(ctx, e.idle)
	if err != nil {
		return err
	}
	if err := e.send(EventStart, line); err != nil {
		return err
	}
	if err := e.sendState(); err != nil {
		return err
	}
	if err := e.readAll(ctx, e.take, e.idle); err != nil {
		return err
	}
	if err := e.sendSteps(); err != nil { // the final steps, also for a late reader
		return err
	}
	if err := e.sendState(); err != nil {
		return err
	}
	line, err = oneLine(e.snap.Footer)
	if err != nil {
		return err
	}
	return e.send(EventEnd, line)
}

func (e *events) take(piece []byte, _ bool) error {
	if err := e.sendLog(piece); err != nil {
		return err
	}
	return e.sendChanges()
}

// sendLog sends the whole lines at the start of b, which was read at pos, or the middle of a line too long for one
// piece.
func (e *events) sendLog(b []byte) error {
	final := e.sealed >= 0 && e.pos+int64(len(b)) >= e.sealed
	full := len(b) == pieceSize
	whole := lastLineEnd(b)
	if final {
		whole = len(b)
	}
	middle := false
	if whole == 0 && (e.open || full) && !final {
		// A CR at the end may be half of a line end, and a character may be incomplete: both wait for the next piece.
		whole = WholeCharacters(bytes.TrimSuffix(b, []byte("\r")))
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

// lastLineEnd returns the index after the last unambiguous line end in b.
func lastLineEnd(b []byte) int {
	lf := bytes.LastIndexByte(b, '\n') + 1
	if rest := b[lf:]; len(rest) > 1 {
		return lf + bytes.LastIndexByte(rest[:len(rest)-1], '\r') + 1
	}
	return lf
}

// writeLines writes each line of b as one data field. inLine means that the first line continues a field; the result is
// whether the last line is unfinished. out keeps errors until it is flushed.
func writeLines(out *bufio.Writer, b []byte, inLine bool) bool {
	lf := -1
	for at := 0; at < len(b); {
		if !inLine {
			out.WriteString("data: ")
		}
		if lf < at { // searched once per LF, as many CRs would make this quadratic
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
		writeUTF8(out, b[at:end])
		if end == len(b) {
			return true
		}
		out.WriteByte('\n')
		inLine = false
		at = next
	}
	return inLine
}

// writeUTF8 writes text, with U+FFFD for each byte that is not valid UTF-8.
func writeUTF8(out *bufio.Writer, b []byte) {
	if utf8.Valid(b) {
		out.Write(b)
		return
	}
	for len(b) > 0 {
		c, size := utf8.DecodeRune(b)
		_, _ = out.WriteRune(c) // out keeps an error until the flush
		b = b[size:]
	}
}

// WholeCharacters returns the length of b without an incomplete UTF-8 character at its end.
func WholeCharacters(b []byte) int {
	for n := len(b) - 1; n >= 0 && n >= len(b)-utf8.UTFMax; n-- {
		if utf8.RuneStart(b[n]) {
			if utf8.FullRune(b[n:]) {
				break
			}
			return n
		}
	}
	return len(b)
}

// sendChanges sends state, progress and steps that are new. It sends nothing in the middle of a line or after the
// operation has ended.
func (e *events) sendChanges() error {
	if e.open || e.sealed >= 0 {
		return nil
	}
	if e.state != (sentState{e.snap.State, e.snap.StalledAt}) {
		if err := e.sendState(); err != nil {
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

// sendState sends the state, if it is known.
func (e *events) sendState() error {
	if e.snap.State == "" {
		return nil
	}
	e.state = sentState{e.snap.State, e.snap.StalledAt}
	line, err := json.Marshal(e.state)
	if err == nil {
		line, err = oneLine(line)
	}
	if err != nil {
		return fmt.Errorf("send the state: %w", err)
	}
	return e.send(EventState, line)
}

// sendSteps sends the steps that changed since they were last sent.
func (e *events) sendSteps() error {
	for i, step := range e.snap.Steps {
		if i < len(e.steps) && bytes.Equal(step, e.steps[i]) {
			continue
		}
		line, err := oneLine(step)
		if err != nil {
			continue // not JSON: omitted, as with progress
		}
		if err := e.send(EventStep, line); err != nil {
			return err
		}
	}
	e.steps = e.snap.Steps
	return nil
}

// sentState is the data of state_json.
type sentState struct {
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

// idle waits for a wake, and writes a comment whenever nothing was sent for a heartbeat.
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

// runningBeat returns the timer of the next heartbeat, nil if none may be sent.
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

func (e *events) stopHeartbeat() {
	if e.beat != nil {
		e.beat.Stop()
	}
}

// shutdownComment writes the last comment. In the middle of a line no empty line follows it, so that the reader
// discards the unfinished event and requests it again.
func (e *events) shutdownComment() error {
	if e.open {
		return e.comment("\n: shutting down\n")
	}
	return e.comment(": shutting down\n\n")
}

func (e *events) comment(text string) error {
	e.busy = true
	return e.out.send([]byte(text))
}
