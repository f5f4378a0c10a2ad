package outbox

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsent returns how many bytes of a connection the peer has not acknowledged; false when that is
// unknown.
func unsent(conn net.Conn) (n int, ok bool) {
	c, isRaw := conn.(syscall.Conn)
	if !isRaw {
		return 0, false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { n, failed = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err != nil ||
		failed != nil {
		return 0, false
	}
	return n, true
}
