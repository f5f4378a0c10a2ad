package stream

import (
	"bytes"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// growing writes a log piece by piece while a text reader and an events reader follow. After each piece both have
// caught up; after some pieces, unfinished lines have been sent too.
func growing(t *testing.T, parts [][]byte, pauses []bool) (text, events []byte) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := newOperation(t)
		var textSink, eventSink sink
		textSource, eventSource := o.source(), o.source()
		done := make(chan error, 2)
		go func() { done <- Text(t.Context(), &textSink, textSink.Flush, textSource, 0) }()
		go func() { done <- Events(t.Context(), &eventSink, eventSink.Flush, eventSource, 0, Heartbeat) }()
		for i, part := range parts {
			o.write(string(part))
			if pauses[i] {
				pass(2 * partialDelay)
			}
			synctest.Wait()
		}
		o.end()
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("a reader ended with %v", err)
			}
		}
		text, events = []byte(textSink.take()), []byte(eventSink.take())
	})
	return text, events
}

func TestLiveProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		log := hostileText().Draw(rt, "log")
		parts := cuts(rt, log)
		pauses := rapid.SliceOfN(rapid.Bool(), len(parts), len(parts)).Draw(rt, "pauses")
		text, events := growing(t, parts, pauses)
		if want := textOf(log, 0); !bytes.Equal(text, want) {
			rt.Fatalf("log %q: text\n%q, want\n%q", parts, text, want)
		}
		if got, want := logOf(dispatch(events)), linesOf(log); got != want {
			rt.Fatalf("log %q: events %q give %q, want %q", parts, events, got, want)
		}
	})
}

// A line longer than a piece is sent as events while it grows.
func TestLiveLongLine(t *testing.T) {
	t.Parallel()
	x := bytes.Repeat([]byte("x"), pieceSize)
	parts := [][]byte{x[:9], x, x[:5], []byte("\r"), []byte("\n"), x, []byte("\r"), []byte("y\n"), x, x, []byte("end")}
	log := bytes.Join(parts, nil)
	text, events := growing(t, parts, make([]bool, len(parts)))
	if !bytes.Equal(text, textOf(log, 0)) {
		t.Errorf("text: %d bytes differ from the definition", len(text))
	}
	all := dispatch(events)
	if logOf(all) != linesOf(log) {
		t.Errorf("events: %d bytes of log differ from the definition", len(logOf(all)))
	}
}
