package stream

import (
	"bytes"
	"context"
	"regexp"
	"testing"

	"pgregory.net/rapid"
)

// The documented expressions of clients. Go's $ without the m flag is the end of the text, as in JavaScript, and both
// prefer the leftmost match and the shortest repetition.
var (
	clientHeader = regexp.MustCompile(`(?s)<start_json>\n(.*?)\n</start_json>`)
	clientLog    = regexp.MustCompile(`(?s)<log>\n(.*?)(?:</log>|$)`)
	clientFooter = regexp.MustCompile(`(?s)<end_json>\n(.*?)\n</end_json>`)
)

// read returns the whole stream of an ended operation.
func read(t rapid.TB, o *operation, offset int64) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Text(context.Background(), &out, nil, o.source(), offset); err != nil {
		t.Fatalf("Text: %v", err)
	}
	return out.Bytes()
}

// checkClient applies the expressions to a growing buffer, as clients do.
func checkClient(t rapid.TB, full []byte, every int) {
	t.Helper()
	logStart := bytes.Index(full, []byte("<log>\n")) + len("<log>\n")
	logEnd := bytes.Index(full, []byte("</log>"))
	headerEnd := bytes.Index(full, []byte("</start_json>")) + len("</start_json>")
	footerEnd := len(full) - 1
	for n := 0; n <= len(full); n += every {
		buffer := full[:n]
		expect(t, buffer, clientHeader, testHeaderLine, n >= headerEnd)
		expect(t, buffer, clientFooter, testFooterText, n >= footerEnd)
		end := n
		if n >= logEnd+len("</log>") {
			end = logEnd
		}
		expect(t, buffer, clientLog, string(full[min(logStart, end):end]), n >= logStart)
	}
}

func expect(t rapid.TB, buffer []byte, re *regexp.Regexp, want string, found bool) {
	t.Helper()
	m := re.FindSubmatch(buffer)
	if (m != nil) != found || found && string(m[1]) != want {
		t.Fatalf("%s on %q: %q, want found %v, %q", re, buffer, m, found, want)
	}
}

// checkCompose composes a log, and checks the result with the definition, the clients' expressions and the parser.
func checkCompose(t rapid.TB, o *operation, log []byte, offset int, size byte) {
	t.Helper()
	full := read(t, o, int64(offset))
	if want := textOf(log, offset); !bytes.Equal(full, want) {
		t.Fatalf("log %q from %d:\n%q, want\n%q", log, offset, full, want)
	}
	checkClient(t, full, 1+len(full)/400)
	checkClient(t, full, len(full))

	var got parsed
	p := got.parser(0)
	for _, part := range inPieces(full, size) {
		if _, err := p.Write(part); err != nil {
			t.Fatalf("parse %q: %v", full, err)
		}
	}
	if err := p.Close(); err != nil || !done(p) {
		t.Fatalf("parse %q: done %v, %v", full, done(p), err)
	}
	text := log[min(offset, len(log)):]
	if len(log) > 0 && offset <= len(log) && log[len(log)-1] != '\n' {
		text = append(bytes.Clone(text), '\n')
	}
	want := parsed{header: testHeaderLine, log: string(text), footer: testFooterText}
	if got != want {
		t.Fatalf("parsed %+v, want %+v", got, want)
	}
}

func TestComposeProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		log := hostileText().Draw(rt, "log")
		offset := rapid.IntRange(0, len(log)+2).Draw(rt, "offset")
		o := endedOperation(t, log)
		checkCompose(rt, o, log, offset, rapid.Byte().Draw(rt, "size"))
		o.log.Close()
	})
}

func TestComposeEveryOffset(t *testing.T) {
	t.Parallel()
	log := []byte("one\n</log>\n<end_json>\n{}\n</end_json>\n\r\n<\\log>é last <log")
	o := endedOperation(t, log)
	for offset := range len(log) + 3 {
		checkCompose(t, o, log, offset, 5)
	}
}

func FuzzComposeParse(f *testing.F) {
	f.Add([]byte("a\n</log>\n<end_json>\n{}\n</end_json>\n"), uint16(0), byte(1))
	f.Add([]byte("ends in <log"), uint16(3), byte(0))
	f.Add([]byte(""), uint16(1), byte(2))
	f.Fuzz(func(t *testing.T, log []byte, offset uint16, size byte) {
		checkCompose(t, endedOperation(t, log), log, int(offset), size)
	})
}
