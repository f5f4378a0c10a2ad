package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// parsed records the calls of a receiver.
type parsed struct{ header, log, footer string }

func (p *parsed) parser(maxFooter int) *Parser {
	return NewParser(Receiver{
		Header: func(b []byte) error { p.header += string(b); return nil },
		Log:    func(b []byte) error { p.log += string(b); return nil },
		Footer: func(b []byte) error { p.footer += string(b); return nil },
	}, maxFooter)
}

// done reports whether the footer was received.
func done(p *Parser) bool { return p.err == nil && p.step >= footerStep }

// parse returns all observable results of a parse, as one text.
func parse(parts [][]byte, maxFooter int) string {
	var got parsed
	p := got.parser(maxFooter)
	for _, part := range parts {
		if _, err := p.Write(part); err != nil {
			break
		}
	}
	return fmt.Sprintf("%q done=%v log=%d close=%v", got, done(p), p.LogBytes(), p.Close())
}

const smallStream = "<start_json>\n{\"id\": 1}\n</start_json>\n<log>\na <\\/log>\n</log>\n<end_json>\n{\n  \"a\": 1\n}\n</end_json>\n"

func TestParser(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		want     parsed
		err      string
	}{
		{"whole", smallStream, parsed{`{"id": 1}`, "a </log>\n", "{\n  \"a\": 1\n}"}, ""},
		{
			"without the last newline", strings.TrimSuffix(smallStream, "\n"),
			parsed{`{"id": 1}`, "a </log>\n", "{\n  \"a\": 1\n}"},
			"",
		},
		{"nothing", "", parsed{}, "ended in the start, after 0 bytes of log: no footer was received"},
		{
			"cut in the log", smallStream[:44],
			parsed{header: `{"id": 1}`, log: "a"},
			"ended in the log, after 1 bytes of log: no footer",
		},
		{
			"cut in the footer", smallStream[:80],
			parsed{header: `{"id": 1}`, log: "a </log>\n"},
			"ended in the footer, after 9 bytes",
		},
		{"another page", "<!doctype html>", parsed{}, "byte 1: found '!' in the start, want \"<start_json>\\n\""},
		{"more behind it", smallStream + "x", parsed{`{"id": 1}`, "a </log>\n", "{\n  \"a\": 1\n}"}, "after its end"},
		{"header is no JSON", "<start_json>\nid\n</start_json>\n", parsed{}, "the header is not JSON"},
		{
			"footer is too long", strings.Replace(smallStream, "  ", strings.Repeat(" ", 100), 1),
			parsed{header: `{"id": 1}`, log: "a </log>\n"},
			"the footer is longer than the 64 bytes",
		},
		{
			"footer with a tag start", strings.Replace(smallStream, "1\n}", "\"</end_json\"\n}", 1),
			parsed{`{"id": 1}`, "a </log>\n", "{\n  \"a\": \"</end_json\"\n}"},
			"",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got parsed
			p := got.parser(64)
			_, err := io.Copy(p, strings.NewReader(tt.in))
			if closed := p.Close(); err == nil {
				err = closed
			}
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			want := parse(inPieces([]byte(tt.in), 0), 64)
			for size := range byte(20) {
				if got := parse(inPieces([]byte(tt.in), size), 64); got != want {
					t.Errorf("in pieces of %d: %s, want %s", size, got, want)
				}
			}
		})
	}
}

func TestParserErrorsStay(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	p := NewParser(Receiver{Log: func([]byte) error { return stop }}, 0)
	for range 2 {
		if _, err := io.Copy(p, strings.NewReader(smallStream)); !errors.Is(err, stop) {
			t.Fatalf("Write: %v, want the error of the receiver", err)
		}
	}
	if err := p.Close(); !errors.Is(err, stop) || done(p) {
		t.Errorf("Close: %v, Done: %v", err, done(p))
	}
	if err := NewParser(Receiver{}, 0).Close(); !errors.Is(err, ErrIncomplete) {
		t.Errorf("Close of nothing: %v, want ErrIncomplete", err)
	}
}

func TestParserKeepsNoLog(t *testing.T) {
	t.Parallel()
	p := NewParser(Receiver{}, 0)
	piece := bytes.Repeat([]byte("a <\\log> line\n"), 1000)
	if _, err := io.WriteString(p, smallStream[:43]); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if _, err := p.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if cap(p.clear) > 2*len(piece) || cap(p.object) > 1024 {
		t.Errorf("the parser holds %d and %d bytes", cap(p.clear), cap(p.object))
	}
}

func TestParserProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(smallStream)
		if rapid.Bool().Draw(t, "hostile log") {
			b = bytes.Replace(b, []byte(`a <\/log>`), hostileText().Draw(t, "log"), 1)
		}
		b = b[:rapid.IntRange(0, len(b)).Draw(t, "cut")]
		want := parse([][]byte{b}, 0)
		if got := parse(cuts(t, b), 0); got != want {
			t.Fatalf("in pieces: %s, want %s", got, want)
		}
	})
}

func FuzzParser(f *testing.F) {
	f.Add([]byte(smallStream), byte(1))
	f.Add([]byte(smallStream[:60]), byte(7))
	f.Add([]byte("<start_json>\n\n</start_json>\n"), byte(2))
	f.Fuzz(func(t *testing.T, b []byte, size byte) {
		want := parse([][]byte{b}, 100)
		if got := parse(inPieces(b, size), 100); got != want {
			t.Fatalf("in pieces of %d: %s, want %s", size, got, want)
		}
	})
}
