package cli

import (
	"bytes"
	"encoding/json"
	"io"
)

// logOutput is where a log goes: as it is, or each line as a JSON object.
type logOutput interface {
	io.Writer
	end() error
}

func (a *app) logOutput(opts logsOptions) logOutput {
	if opts.json {
		return &logLines{out: json.NewEncoder(a.streams.Out), offset: opts.offset}
	}
	return plainLog{a.streams.Out}
}

type plainLog struct{ io.Writer }

func (plainLog) end() error { return nil }

// logLine is one line of a log. Bytes that are not UTF-8 are replaced, as JSON wants.
type logLine struct {
	// Offset is where the line begins, in bytes.
	Offset int64  `json:"offset"`
	Line   string `json:"line"`
	// Cut says that the line is not finished.
	Cut bool `json:"cut,omitempty"`
}

// logLines cuts a log into lines.
type logLines struct {
	out    *json.Encoder
	offset int64
	rest   []byte
}

func (l *logLines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		if err := l.out.Encode(logLine{Offset: l.offset, Line: string(l.rest[:i])}); err != nil {
			return len(p), err
		}
		l.offset += int64(i) + 1
		l.rest = l.rest[i+1:]
	}
}

func (l *logLines) end() error {
	if len(l.rest) == 0 {
		return nil
	}
	return l.out.Encode(logLine{Offset: l.offset, Line: string(l.rest), Cut: true})
}
