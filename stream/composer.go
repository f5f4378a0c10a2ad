package stream

import (
	"io"
	"slices"
)

// Composer writes the text form of a stream from its parts, as a [Parser] hands them on. What it writes is what the parser
// read, byte for byte, for any chunking; with the parts of several connections, each of which began where the one before was cut
// off, it is what one connection that lasted would have given.
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

// Header writes all that stands before the log. A header that comes again, from a later connection, is not written again.
func (c *Composer) Header(object []byte) error {
	if c.begun {
		return nil
	}
	c.begun = true
	return c.write(slices.Concat([]byte(openHeader), object, []byte(closeHeader), []byte(openLog)))
}

// Log writes the next bytes of the log, escaped. An end that may yet become a tag is held back until that is decided.
func (c *Composer) Log(text []byte) error {
	c.safe = c.escape.Append(c.safe[:0], text)
	if len(c.safe) == 0 {
		return nil
	}
	return c.write(c.safe)
}

// Footer writes the end of the log and all that stands after it.
func (c *Composer) Footer(object []byte) error {
	rest := c.escape.Flush(nil)
	return c.write(slices.Concat(rest, []byte(closeLog), []byte(openFooter), object, []byte(closeFooter), []byte("\n")))
}

func (c *Composer) write(b []byte) error {
	_, err := c.w.Write(b)
	return err
}
