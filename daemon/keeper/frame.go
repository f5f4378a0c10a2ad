package keeper

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// A frame is a length of four bytes, most significant first, and that many bytes of JSON.
const (
	// maxFrame bounds the bytes read before a frame is decoded. Arguments and environment of a
	// command take at most 2 MiB (execve(2)), and a third more in base64.
	maxFrame = 16 << 20
	// maxWaitingFiles bounds the received descriptors that no message has claimed yet; the kernel
	// passes at most 253 in one message (unix(7)).
	maxWaitingFiles = 256
	// maxKept is the largest buffer that is kept for the next frame: one large message must not hold its memory forever.
	maxKept = 64 << 10
)

// sendTimeout is how long a message may wait for a peer that does not read.
const sendTimeout = 30 * time.Second

// errFrame means that the peer does not follow the protocol. The connection cannot be used any
// more.
var errFrame = errors.New("the peer does not speak the keeper's protocol")

// errTooLarge means that a message cannot be sent at all.
var errTooLarge = errors.New("the message is too large")

// socket is a connection that carries bytes and descriptors, in order.
type socket interface {
	// read fills p with at least one byte, and returns the descriptors that came with the bytes.
	read(p []byte) (n int, files []*os.File, err error)
	// write writes all of p, and passes file, if it is not nil, with the first byte.
	write(p []byte, file *os.File) error
	SetWriteDeadline(t time.Time) error
	// closeWrite ends sending. What the peer has already sent can be read for another second.
	closeWrite()
	Close() error
}

// channel sends and receives frames. One goroutine receives; any may send.
type channel struct {
	socket
	mu  sync.Mutex // held while a frame is written
	out []byte

	in    *bufio.Reader // of received
	frame bytes.Buffer  // the frame that is being read
	files []*os.File
}

func newChannel(s socket) *channel {
	c := &channel{socket: s}
	c.in = bufio.NewReader(received{c})
	return c
}

// received reads the bytes of a channel, and keeps the descriptors that come with them.
type received struct{ *channel }

func (r received) Read(p []byte) (int, error) {
	n, files, err := r.read(p)
	r.files = append(r.files, files...)
	if err == nil && len(r.files) > maxWaitingFiles {
		err = fmt.Errorf("%w: %d descriptors without their messages", errFrame, len(r.files))
	}
	return max(n, 0), err // -1 with an error
}

// send writes one frame; file may be nil. The descriptor goes with the first byte of the frame, so
// a peer that has the frame has the descriptor too.
func (c *channel) send(message any, file *os.File) error {
	data, err := json.Marshal(message)
	if err != nil {
		return errors.Join(errTooLarge, err)
	}
	if len(data) > maxFrame {
		return fmt.Errorf("a message of %d bytes, and at most %d are possible: %w", len(data), maxFrame, errTooLarge)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(binary.BigEndian.AppendUint32(c.out[:0], uint32(len(data))), data...)
	if err := c.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	err = c.write(c.out, file)
	if cap(c.out) > maxKept {
		c.out = nil
	}
	return err
}

// receive reads one frame into message. The buffer grows with the bytes received, not with the
// length announced.
func (c *channel) receive(message any) error {
	var head [4]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length > maxFrame {
		return fmt.Errorf("%w: a frame of %d bytes", errFrame, length)
	}
	c.frame.Reset()
	if _, err := io.CopyN(&c.frame, c.in, int64(length)); err != nil {
		return err
	}
	if err := json.Unmarshal(c.frame.Bytes(), message); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	if c.frame.Cap() > maxKept {
		c.frame = bytes.Buffer{}
	}
	return nil
}

// file returns the descriptor that belongs to the frame received last. Descriptors arrive in the
// order of the frames that announce one, each with the first byte of its frame or earlier.
func (c *channel) file() (*os.File, error) {
	if len(c.files) == 0 {
		return nil, fmt.Errorf("%w: a message without the descriptor that it promises", errFrame)
	}
	f := c.files[0]
	c.files = c.files[1:]
	return f, nil
}

// close closes the connection and the descriptors that no message claimed.
func (c *channel) close() {
	_ = c.Close() // everything that matters was answered
	for _, f := range c.files {
		_ = f.Close() // this process wrote nothing to it
	}
	c.files = nil
}
