package stream

import (
	"fmt"
	"io"
)

// output is the destination of a stream.
type output struct {
	w    io.Writer
	push func() error // may be nil
}

func (o output) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if _, err := o.w.Write(b); err != nil {
		return sendError(err)
	}
	return nil
}

func (o output) flush() error {
	if o.push == nil {
		return nil
	}
	if err := o.push(); err != nil {
		return sendError(err)
	}
	return nil
}

func sendError(err error) error {
	return fmt.Errorf("send the stream: %w", err)
}
