package stream

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// A character whose bytes arrive separately stays whole, unless its rest is more than 100 ms late.
func TestTextKeepsCharactersWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOperation(t)
		var s sink
		_, done := follow(o, &s)
		arrived := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := s.take(); got != want {
				t.Fatalf("%s: %q arrived, want %q", when, got, want)
			}
		}
		arrived("first", testStart)
		o.write("caf\xc3")
		pass(partialDelay)
		arrived("an unfinished line that ends inside a character", "caf")
		pass(partialDelay / 2)
		o.write("\xa9")
		pass(partialDelay)
		arrived("the rest of the character", "\xc3\xa9")
		o.write("\xe2\x82")
		pass(partialDelay - time.Nanosecond)
		arrived("a character alone", "")
		pass(time.Nanosecond)
		arrived("a character that is late", "\xe2\x82")
		o.write("\xff")
		pass(partialDelay)
		arrived("a byte that begins no character", "\xff")
		o.write("\xf0\x9f")
		synctest.Wait()
		o.end()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := s.take(); !strings.HasPrefix(got, "\xf0\x9f\n</log>") {
			t.Errorf("at the end arrived %q", got)
		}
	})
}

// Long lines are sent in several pieces; each piece is valid text.
func TestPiecesKeepCharactersWhole(t *testing.T) {
	t.Parallel()
	for shift := range 4 {
		log := strings.Repeat("x", shift) + strings.Repeat("\U0001F642", pieceSize) + "\n"
		o := endedOperation(t, []byte(log))
		var s sink
		if err := Text(t.Context(), &s, s.Flush, o.source(), 0); err != nil {
			t.Fatal(err)
		}
		for i, write := range s.writes {
			if !utf8.ValidString(write) {
				t.Errorf("shifted by %d: write %d ends inside a character: %q", shift, i, write[len(write)-8:])
			}
		}
		checkEvents(t, o, []byte(log), 0)
		var live sink
		o = newOperation(t)
		o.write(log[:len(log)-3])
		o.end()
		if err := Events(t.Context(), &live, live.Flush, o.source(), 0, 0); err != nil ||
			!utf8.ValidString(strings.Join(live.writes, "")) {
			t.Errorf("shifted by %d: the events are not UTF-8 (%v)", shift, err)
		}
	}
}
