package stream

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// message is an event as a browser dispatches it.
type message struct{ event, data, id string }

// dispatch reads an event stream by the rules of WHATWG HTML, section 9.2.6.
func dispatch(stream []byte) []message {
	text := strings.TrimPrefix(string(stream), "\ufeff")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	var all []message
	var event, id string
	var data strings.Builder
	for {
		line, rest, found := strings.Cut(text, "\n")
		if !found {
			return all // data without an empty line after it is discarded
		}
		text = rest
		if line == "" {
			if data.Len() > 0 {
				all = append(all, message{event, strings.TrimSuffix(data.String(), "\n"), id})
			}
			event = ""
			data.Reset()
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			event = value
		case "data":
			data.WriteString(value + "\n")
		case "id":
			if !strings.Contains(value, "\x00") {
				id = value
			}
		}
	}
}

// logOf joins the log as a client does.
func logOf(all []message) string {
	var log strings.Builder
	for _, m := range all {
		if m.event == EventLog {
			log.WriteString(m.data + "\n")
		}
	}
	return log.String()
}

// linesOf defines what a client gets: every line ends in LF, and each byte that is not UTF-8 is U+FFFD.
func linesOf(log []byte) string {
	text := strings.ReplaceAll(strings.ReplaceAll(string(log), "\r\n", "\n"), "\r", "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return string([]rune(text))
}

func readEvents(t rapid.TB, o *operation, offset int64) []message {
	t.Helper()
	var out bytes.Buffer
	if err := Events(context.Background(), &out, nil, o.source(), offset, Heartbeat); err != nil {
		t.Fatalf("Events: %v", err)
	}
	return dispatch(out.Bytes())
}

// checkEvents reads an ended operation as events, and again from every id it received.
func checkEvents(t rapid.TB, o *operation, log []byte, offset int) {
	t.Helper()
	all := readEvents(t, o, int64(offset))
	if first, want := all[0], (message{EventStart, testHeaderLine, strconv.Itoa(offset)}); first != want {
		t.Fatalf("the first event is %+v, want %+v", first, want)
	}
	const state = `{"state": "completed"}`
	second, before := all[1], all[len(all)-2]
	if second.event != EventState || second.data != state || before.event != EventState || before.data != state {
		t.Fatalf("behind the first and before the last event: %+v and %+v, want the state", second, before)
	}
	if last := all[len(all)-1]; last.event != EventEnd || last.data != `{"result": "success", "state": "completed"}` {
		t.Fatalf("the last event is %+v", last)
	}
	if got, want := logOf(all), linesOf(log[min(offset, len(log)):]); got != want {
		t.Fatalf("log %q from %d: got %q, want %q", log, offset, got, want)
	}
	for i, m := range all {
		if m.event != EventStart && m.event != EventLog && m.event != EventEnd && (m.event != EventState || m.data != state) {
			t.Fatalf("log %q: forged event %+v", log, m)
		}
		from, err := strconv.ParseInt(m.id, 10, 64)
		if err != nil || offset <= len(log) && from > int64(len(log)) {
			t.Fatalf("event %+v: id is no offset", m)
		}
		if got, want := logOf(readEvents(t, o, from)), logOf(all[i+1:]); got != want {
			t.Fatalf("log %q, again from %d: %q, want %q", log, from, got, want)
		}
	}
}

func TestEventsProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		log := hostileText().Draw(rt, "log")
		o := endedOperation(t, log)
		checkEvents(rt, o, log, rapid.IntRange(0, len(log)+2).Draw(rt, "offset"))
		o.log.Close()
	})
}

func FuzzSSE(f *testing.F) {
	f.Add([]byte("a\r\nb\rc\n\n\nid: 7\n\nevent: end_json\rdata: {}\r\r"), uint16(0))
	f.Add([]byte("no end"), uint16(2))
	f.Fuzz(func(t *testing.T, log []byte, offset uint16) {
		checkEvents(t, endedOperation(t, log), log, int(offset))
	})
}

func TestEventsLongLines(t *testing.T) {
	t.Parallel()
	x := strings.Repeat("x", pieceSize)
	for name, log := range map[string]string{
		"one piece":                     x,
		"one piece and LF":              x[1:] + "\n",
		"CR at the end of a piece":      x[1:] + "\r",
		"CR LF over two pieces":         x[1:] + "\r\nnext\n",
		"CR and a line over two pieces": x[1:] + "\rnext\n",
		"three pieces":                  "a\n" + x + x + x + "\nb\n" + x + x,
		"only CR":                       strings.Repeat("\r", 3*pieceSize+1),
		"only LF":                       strings.Repeat("\n", pieceSize+1),
		"lines with CR":                 strings.Repeat("12%\r", pieceSize),
		"ends with an open line":        x + x + x[:7],
		"ends with CR":                  x + x[:7] + "\r",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkEvents(t, endedOperation(t, []byte(log)), []byte(log), 0)
		})
	}
}

func TestEventsLinesOfOneEvent(t *testing.T) {
	t.Parallel()
	all := readEvents(t, endedOperation(t, []byte("a\n\n  b\r\nc\rlast")), 0)
	want := []message{
		{EventStart, testHeaderLine, "0"},
		{EventState, `{"state": "completed"}`, "0"},
		{EventLog, "a\n\n  b\nc\nlast", "14"},
		{EventState, `{"state": "completed"}`, "14"},
		{EventEnd, `{"result": "success", "state": "completed"}`, "14"},
	}
	if !slices.Equal(all, want) {
		t.Errorf("got %q, want %q", all, want)
	}
}

func TestEventsFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOperation(t)
		var s sink
		src := o.source()
		done := make(chan error, 1)
		go func() { done <- Events(t.Context(), &s, s.Flush, src, 0, Heartbeat) }()
		arrived := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := s.take(); got != want {
				t.Fatalf("%s: %q arrived, want %q", when, got, want)
			}
		}
		arrived("at the start", "event: start_json\ndata: "+testHeaderLine+"\nid: 0\n\n"+
			"event: state_json\ndata: {\"state\": \"running\"}\nid: 0\n\n")
		o.write("one\ntw")
		arrived("after a line", "event: log\ndata: one\nid: 4\n\n")
		pass(Heartbeat - time.Nanosecond)
		o.write("o") // does not delay the comment, because nothing is sent
		arrived("just before the heartbeat", "")
		pass(time.Nanosecond)
		arrived("at the heartbeat", ": idle\n\n")
		pass(Heartbeat)
		arrived("at the next heartbeat", ": idle\n\n")
		o.update(func(s *Snapshot) { s.State, s.Progress = "paused", []byte("{\"done\":1,\n\"phase\":\"<log>\"}") })
		arrived("with state and progress", "event: state_json\ndata: {\"state\": \"paused\"}\nid: 4\n\n"+
			"event: progress\ndata: {\"done\": 1, \"phase\": \"\\u003clog>\"}\nid: 4\n\n")
		o.update(func(s *Snapshot) { s.Progress = []byte("{\"done\":") })
		arrived("with broken progress", "")
		o.write("\r")
		arrived("with half a line end", "")
		o.write("\n")
		arrived("with the line end", "event: log\ndata: two\nid: 9\n\n")
		o.write("last")
		o.end()
		arrived("at the end", "event: log\ndata: last\nid: 13\n\n"+
			"event: state_json\ndata: {\"state\": \"completed\"}\nid: 13\n\n"+
			"event: end_json\ndata: {\"result\": \"success\", \"state\": \"completed\"}\nid: 13\n\n")
		if err := <-done; err != nil {
			t.Errorf("Events: %v", err)
		}
	})
}

func TestEventsShutdown(t *testing.T) {
	t.Parallel()
	x := strings.Repeat("x", pieceSize)
	left := errors.New("the reader left")
	tests := []struct {
		name  string
		log   string
		cause error
		ends  string
	}{
		{"shutdown", "one\nhalf", ErrShutdown, "id: 4\n\n: shutting down\n\n"},
		{"shutdown inside a long line", "one\n" + x + x, ErrShutdown, "xxx\n: shutting down\n"},
		{"reader left", "one\n", left, "id: 4\n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := newOperation(t)
				o.update(func(s *Snapshot) { s.State = "" })
				o.write(tt.log)
				var s sink
				src := o.source()
				ctx, cancel := context.WithCancelCause(t.Context())
				done := make(chan error, 1)
				go func() { done <- Events(ctx, &s, s.Flush, src, 0, Heartbeat) }()
				synctest.Wait()
				pass(2 * Heartbeat * time.Duration(len(tt.log)/pieceSize))
				cancel(tt.cause)
				if err := <-done; !errors.Is(err, tt.cause) {
					t.Errorf("Events: %v, want %v", err, tt.cause)
				}
				got := s.take()
				if !strings.HasSuffix(got, tt.ends) {
					t.Errorf("the stream ends in %q, want %q", got[max(0, len(got)-60):], tt.ends)
				}
				if log := logOf(dispatch([]byte(got))); log != "one\n" {
					t.Errorf("a client has %d bytes of log, want only the whole line", len(log))
				}
			})
		})
	}
}
