package addrtest

import (
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"
)

// ipLocalPortRange is IP_LOCAL_PORT_RANGE of linux/in.h, which package syscall lacks: the ports that the kernel may
// choose for one socket.
const ipLocalPortRange = 51

// onlyPort leaves a socket one port to be given.
func onlyPort(t *testing.T, address string) func(network, address string, c syscall.RawConn) error {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return func(_, _ string, c syscall.RawConn) error {
		var refused error
		err := c.Control(func(fd uintptr) {
			refused = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, ipLocalPortRange, port|port<<16)
		})
		return errors.Join(err, refused)
	}
}

func TestHeldAddressServesAgainAndAgain(t *testing.T) {
	t.Parallel()
	address := For(t)
	for range 3 {
		if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("connect while nobody listens: %v, %v", conn, err)
		}
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Close(), listener.Close()
	}
}

func TestNoOtherSocketGetsAHeldAddress(t *testing.T) {
	t.Parallel()
	address := For(t)
	only := onlyPort(t, address)
	other, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if conn, err := (&net.Dialer{Control: only}).DialContext(t.Context(), "tcp", other.Addr().String()); err == nil {
		_ = conn.Close()
		t.Errorf("a connection got %s, which is held", conn.LocalAddr())
	} else if errors.Is(err, syscall.ENOPROTOOPT) {
		t.Skipf("only a kernel with IP_LOCAL_PORT_RANGE can be asked for one port: boot Linux 6.3 or newer: %v", err)
	} else if !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("a connection that may only have %s: %v", address, err)
	}
	if l, err := (&net.ListenConfig{Control: only}).Listen(t.Context(), "tcp", "127.0.0.1:0"); err == nil {
		_ = l.Close()
		t.Errorf("a listener got %s, which is held", l.Addr())
	}
}
