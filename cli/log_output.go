package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"
)

// logOutput receives a log: as raw bytes, or each line as a JSON object.
type logOutput interface {
	io.Writer
	end() error
}

func (a *app) logOutput(opts logsOptions) logOutput {
	if opts.json {
		return newLogLines(a.streams.Out, opts.offset)
	}
	return plainLog{a.streams.Out}
}

type plainLog struct{ io.Writer }

func (plainLog) end() error { return nil }

// logLine is one line of a log. Bytes that are not UTF-8 are replaced, as JSON requires.
type logLine struct {
	// Offset is the offset of the line in the log, in bytes.
	Offset int64  `json:"offset"`
	Line   string `json:"line"`
	// Cut reports that the line does not end here: the log ends without a newline, or the line is longer than
	// maxLogLine and continues in the next object.
	Cut bool `json:"cut,omitempty"`
}

// maxLogLine is how many bytes of a line are buffered before they are written. It bounds the memory for a log
// without newlines.
const maxLogLine = 64 << 10

// logLines splits a log into lines.
type logLines struct {
	out    *json.Encoder
	offset int64
	rest   []byte // less than maxLogLine bytes without a line end
}

func newLogLines(to io.Writer, offset int64) *logLines {
	out := json.NewEncoder(to)
	out.SetEscapeHTML(false)
	return &logLines{out: out, offset: offset}
}

func (l *logLines) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		piece := rest[:min(len(rest), maxLogLine-len(l.rest))]
		if i := bytes.IndexByte(piece, '\n'); i >= 0 {
			piece = rest[:i]
			l.rest = append(l.rest, piece...)
			if err := l.put(len(l.rest), false); err != nil {
				return 0, err
			}
			l.offset++
			rest = rest[i+1:]
			continue
		}
		l.rest = append(l.rest, piece...)
		rest = rest[len(piece):]
		if len(l.rest) < maxLogLine {
			continue
		}
		if err := l.put(wholeRunes(l.rest), true); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// put writes the first n buffered bytes.
func (l *logLines) put(n int, cut bool) error {
	err := l.out.Encode(logLine{Offset: l.offset, Line: string(l.rest[:n]), Cut: cut})
	if err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	l.offset += int64(n)
	l.rest = append(l.rest[:0], l.rest[n:]...)
	return nil
}

// wholeRunes returns the length of b without an incomplete character at its end.
func wholeRunes(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if utf8.RuneStart(b[len(b)-i]) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return len(b) - i
			}
			break
		}
	}
	return len(b)
}

func (l *logLines) end() error {
	if len(l.rest) == 0 {
		return nil
	}
	return l.put(len(l.rest), true)
}
