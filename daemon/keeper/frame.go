package keeper

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// A frame is a length of four bytes, most significant first, and that many bytes of JSON.
const (
	frameHead = 4
	// maxFrame bounds the bytes read before a frame is decoded. Arguments and environment of a
	// command take at most 2 MiB (execve(2)), and a third more in base64.
	maxFrame = 16 << 20
	// maxWaitingFiles bounds the received descriptors that no message has claimed yet; the kernel
	// passes at most 253 in one message (unix(7)).
	maxWaitingFiles = 256
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

	in    []byte // read and not decoded yet
	used  int
	files []*os.File
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
	if cap(c.out) > 64<<10 {
		c.out = nil // one large message must not hold its memory forever
	}
	return err
}

// receive reads one frame into message.
func (c *channel) receive(message any) error {
	if err := c.fill(frameHead); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(c.in[c.used:])
	if length > maxFrame {
		return fmt.Errorf("%w: a frame of %d bytes", errFrame, length)
	}
	if err := c.fill(frameHead + int(length)); err != nil {
		return err
	}
	data := c.in[c.used+frameHead : c.used+frameHead+int(length)]
	c.used += frameHead + int(length)
	if err := json.Unmarshal(data, message); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	if c.used == len(c.in) {
		c.used = 0
		if c.in = c.in[:0]; cap(c.in) > 64<<10 {
			c.in = nil
		}
	}
	return nil
}

// fill reads until need bytes are buffered. The buffer grows with the bytes received, not with the
// length announced.
func (c *channel) fill(need int) error {
	for len(c.in)-c.used < need {
		if c.used > 0 {
			c.in = c.in[:copy(c.in, c.in[c.used:])]
			c.used = 0
		}
		if free := cap(c.in) - len(c.in); free < 4<<10 {
			c.in = append(make([]byte, 0, max(8<<10, 2*cap(c.in))), c.in...)
		}
		n, files, err := c.read(c.in[len(c.in):cap(c.in)])
		c.files = append(c.files, files...)
		if err != nil {
			return err
		}
		c.in = c.in[:len(c.in)+n]
		if len(c.files) > maxWaitingFiles {
			return fmt.Errorf("%w: %d descriptors without their messages", errFrame, len(c.files))
		}
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
