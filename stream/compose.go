package stream

import (
	"fmt"
	"io"
	"slices"
)

// The frame of the text form. The parser splits it at different places, see [Parser].
const (
	openHeader  = "<start_json>\n"
	closeHeader = "\n</start_json>"
	openLog     = "\n<log>\n"
	closeLog    = "</log>"
	openFooter  = "\n<end_json>\n"
	closeFooter = "\n</end_json>"
)

// opening returns everything before the log.
func opening(header []byte) []byte {
	return slices.Concat([]byte(openHeader), header, []byte(closeHeader), []byte(openLog))
}

// closing returns rest, the end of the escaped log, and everything after the log.
func closing(rest, footer []byte) []byte {
	return slices.Concat(rest, []byte(closeLog), []byte(openFooter), footer, []byte(closeFooter), []byte("\n"))
}

func headerLine(header []byte) ([]byte, error) {
	line, err := oneLine(header)
	if err != nil {
		return nil, fmt.Errorf("compose the stream: the header in the record is not JSON: %w", err)
	}
	return line, nil
}

func footerLines(footer []byte) ([]byte, error) {
	lines, err := pretty(footer)
	if err != nil {
		return nil, fmt.Errorf("compose the stream: the footer in the record is not a JSON object: %w", err)
	}
	return lines, nil
}

// Composer writes the text form of a stream from its parts, as a [Parser] emits them. It reproduces what the parser
// read, byte for byte, for any chunking. From the parts of several connections, each starting where the previous one
// was cut off, it writes what a single connection would have sent.
//
// A Composer is for one goroutine.
type Composer struct {
	w      io.Writer
	begun  bool
	escape escaper
	safe   []byte // reused for escaped log
}

// NewComposer returns a Composer that writes to w.
func NewComposer(w io.Writer) *Composer { return &Composer{w: w} }

// Header writes everything before the log. Further headers, from later connections, are ignored.
func (c *Composer) Header(object []byte) error {
	if c.begun {
		return nil
	}
	c.begun = true
	return c.write(opening(object))
}

// Log writes the next bytes of the log, escaped. It holds back a possible start of a tag at the end until that is
// decided.
func (c *Composer) Log(text []byte) error {
	c.safe = c.escape.append(c.safe[:0], text)
	if len(c.safe) == 0 {
		return nil
	}
	return c.write(c.safe)
}

// Footer writes the end of the log and everything after it.
func (c *Composer) Footer(object []byte) error {
	return c.write(closing(c.escape.flush(nil), object))
}

func (c *Composer) write(b []byte) error {
	_, err := c.w.Write(b)
	return err
}
