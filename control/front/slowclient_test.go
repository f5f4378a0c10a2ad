package front

import (
	"bytes"
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// hesitant is a connection that accepts at most so many bytes per deadline.
type hesitant struct {
	net.Conn
	takes []int
	got   bytes.Buffer
}

func (*hesitant) SetWriteDeadline(time.Time) error { return nil }

func (h *hesitant) Write(p []byte) (int, error) {
	n := len(p)
	if len(h.takes) > 0 {
		n, h.takes = min(n, h.takes[0]), h.takes[1:]
	}
	h.got.Write(p[:n])
	if n < len(p) {
		return n, os.ErrDeadlineExceeded
	}
	return n, nil
}

func TestSlowSubscriberStaysConnected(t *testing.T) {
	t.Parallel()
	const text = "0123456789"
	for _, c := range []struct {
		name  string
		takes []int
		stuck bool
		got   string
		err   error
	}{
		{"all at once", nil, false, text, nil},
		{"a byte at a time", []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, false, text, nil},
		{"nothing until it is asked again", []int{0, 3, 0, 3, 0, 3}, false, text, nil},
		{"nothing twice, so the rest goes where room was kept", []int{4, 0, 0}, true, text, nil},
		{"no room there either", []int{4, 0, 0, 0}, true, "0123", os.ErrDeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			to := &hesitant{takes: c.takes}
			own := &conn{Conn: to}
			own.handled.Store(true)
			own.stallTimeout.Store(int64(time.Minute))
			n, err := own.Write([]byte(text))
			if n != len(c.got) || to.got.String() != c.got || !errors.Is(err, c.err) || own.stalled.Load() != c.stuck {
				t.Errorf("wrote %d, %q, error %v, stuck %v", n, to.got.String(), err, own.stalled.Load())
			}
		})
	}
}
