package stream

import (
	"bufio"
	"io"
	"sync"
)

// pieceSize is how much of a log is read at once, in bytes.
const pieceSize = 64 << 10

// The buffers are borrowed only while there is something to read or write, so that a waiting stream holds none.
var (
	pieces   = sync.Pool{New: func() any { return new([pieceSize]byte) }}
	scratch  = sync.Pool{New: func() any { b := make([]byte, 0, pieceSize+pieceSize/4); return &b }}
	buffered = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, pieceSize) }}
)

// maxScratch is the capacity beyond which a scratch buffer is left to the garbage collector.
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
