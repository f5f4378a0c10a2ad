package front

import (
	"context"
	"errors"
	"os"
	"time"
)

const (
	// sendBufferBytes is the size of the kernel's send buffer for a client of an event stream. finalSendBufferBytes is
	// its size once the client is disconnected: the difference holds the message that tells it so. The kernel may round
	// both and bound the second.
	sendBufferBytes      = 64 << 10
	finalSendBufferBytes = 4 * sendBufferBytes
)

// ErrStalled means that a client read nothing for too long.
var ErrStalled = errors.New("the client does not read")

// bufferedConn is a connection with a configurable send buffer: TCP and unix sockets.
type bufferedConn interface{ SetWriteBuffer(bytes int) error }

// boundStall is [Request.BoundStall] for the connection that a request's context knows.
func boundStall(ctx context.Context, most time.Duration) (stalled func() error) {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return func() error { return nil } // not accepted by this server's listener
	}
	if room, ok := c.Conn.(bufferedConn); ok {
		_ = room.SetWriteBuffer(sendBufferBytes) // at worst the client does not learn why it is disconnected
	}
	c.stallTimeout.Store(int64(most))
	return func() error {
		if c.stalled.Load() {
			return ErrStalled
		}
		return nil
	}
}

// writeUnlessStalled writes as long as there is progress. When the client reads nothing for too long, the connection is
// stalled: the send buffer grows, so that the rest of the current frame and one last frame fit.
func (c *conn) writeUnlessStalled(p []byte, taking time.Duration) (written int, err error) {
	for probed := false; ; {
		bound := taking
		if probed || c.stalled.Load() {
			bound = lingerTime
		}
		if err := c.SetWriteDeadline(time.Now().Add(bound)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(p[written:])
		written += n
		switch {
		case err == nil:
			return written, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return written, err
		case n > 0:
			probed = false
		case c.stalled.Load():
			return written, err
		case !probed:
			probed = true // the kernel wakes a writer late after large reads; a second write finds any free space
		default:
			c.stalled.Store(true)
			if room, ok := c.Conn.(bufferedConn); ok {
				_ = room.SetWriteBuffer(finalSendBufferBytes)
			}
		}
	}
}
