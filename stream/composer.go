package stream

import (
	"io"
	"slices"
)

// Composer writes the text form of a stream from its parts, as a [Parser] emits them. It reproduces what the parser
// read, byte for byte, for any chunking. From the parts of several connections, each starting where the previous one
// was cut off, it writes what a single connection would have sent.
//
// A Composer is for one goroutine.
type Composer struct {
	w      io.Writer
	begun  bool
	escape Escaper
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
	return c.write(slices.Concat([]byte(openHeader), object, []byte(closeHeader), []byte(openLog)))
}

// Log writes the next bytes of the log, escaped. It holds back a possible start of a tag at the end until that is
// decided.
func (c *Composer) Log(text []byte) error {
	c.safe = c.escape.Append(c.safe[:0], text)
	if len(c.safe) == 0 {
		return nil
	}
	return c.write(c.safe)
}

// Footer writes the end of the log and everything after it.
func (c *Composer) Footer(object []byte) error {
	rest := c.escape.Flush(nil)
	return c.write(slices.Concat(rest, []byte(closeLog), []byte(openFooter), object, []byte(closeFooter), []byte("\n")))
}

func (c *Composer) write(b []byte) error {
	_, err := c.w.Write(b)
	return err
}
