package stream

import (
	"bufio"
	"fmt"
	"io"
	"sync"
)

// output is the destination of a stream.
type output struct {
	w    io.Writer
	push func() error // may be nil
}

// send writes b and flushes it.
func (o output) send(b []byte) error {
	if len(b) > 0 {
		if _, err := o.w.Write(b); err != nil {
			return sendError(err)
		}
	}
	return o.flush()
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

// pieceSize is how much of a log is read at once, in bytes.
const pieceSize = 64 << 10

// Buffers are taken from the pools only while there is data to read or write, so a waiting stream holds none.
var (
	pieces   = sync.Pool{New: func() any { return new([pieceSize]byte) }}
	scratch  = sync.Pool{New: func() any { b := make([]byte, 0, pieceSize+pieceSize/4); return &b }}
	buffered = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, pieceSize) }}
)

// maxScratch is the capacity above which a scratch buffer is not returned to the pool.
const maxScratch = 4 * pieceSize

func giveScratch(b *[]byte) {
	if cap(*b) <= maxScratch {
		scratch.Put(b)
	}
}

func takeBuffered(w io.Writer) *bufio.Writer {
	b := buffered.Get().(*bufio.Writer)
	b.Reset(w)
	return b
}

func giveBuffered(b *bufio.Writer) {
	b.Reset(nil)
	buffered.Put(b)
}
