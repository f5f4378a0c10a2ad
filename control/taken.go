package control

import (
	"errors"
	"net/http"
	"os"
	"time"
)

const (
	// takenRoom is how much the kernel is to hold for a client that follows events, in bytes, and lastRoom how much once the client is
	// let go: the difference is for what tells it so. The kernel may round both and bound the second.
	takenRoom = 64 << 10
	lastRoom  = 4 * takenRoom
)

// bufferedConn is a connection of which the kernel's room for what was not taken yet can be set: TCP and unix sockets.
type bufferedConn interface{ SetWriteBuffer(bytes int) error }

// boundTaking bounds for how long the client of a request may take nothing of the answer, for as long as the connection lives; the
// connection must not be used for another request. It returns nil where the connection is not one of this server.
func (s *Server) boundTaking(r *http.Request) *conn {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		return nil
	}
	if room, ok := c.Conn.(bufferedConn); ok {
		_ = room.SetWriteBuffer(takenRoom) // the worst is that the client is not told why it is let go
	}
	c.taking.Store(int64(s.limits.Take))
	return c
}

// gaveUp reports whether the client took nothing for too long.
func (c *conn) gaveUp() bool { return c != nil && c.stuck.Load() }

// writeTaken writes as long as the client takes any of it. When it takes nothing for too long the connection is stuck: what is in hand goes to
// the kernel, into room that was kept for it, so that the frame is whole and a last one can follow.
func (c *conn) writeTaken(p []byte, taking time.Duration) (written int, err error) {
	for probed := false; ; {
		bound := taking
		if probed || c.stuck.Load() {
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
		case c.stuck.Load():
			return written, err
		case !probed:
			probed = true // the kernel wakes a writer late, when much was taken; asked again it tells of any room
		default:
			c.stuck.Store(true)
			if room, ok := c.Conn.(bufferedConn); ok {
				_ = room.SetWriteBuffer(lastRoom)
			}
		}
	}
}
