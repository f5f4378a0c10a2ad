// Package addrtest keeps an address of loopback for a server that a test ends and starts again.
//
// A test that asks for a free port and closes it again does not own it: while the server is down, another program's
// connection or listener may get the port, and then the server does not start. An [Address] is held by a socket that
// is bound and does not listen. On Linux (net/ipv4/inet_connection_sock.c) no socket that asks for
// any port gets it; a server that names it, with SO_REUSEADDR as package net sets it, does; and while no server
// listens, connections are refused.
package addrtest

import (
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
)

// Address is a port of loopback that is held. It is safe for concurrent use.
type Address struct {
	host   string
	socket *os.File
}

// Hold takes a free port, until Close. An Address that is garbage is closed too.
func Hold() (*Address, error) {
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	a := &Address{socket: os.NewFile(uintptr(fd), "held address")}
	if err := a.bind(fd); err != nil {
		_ = a.socket.Close()
		return nil, err
	}
	return a, nil
}

func (a *Address) bind(fd int) error {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	if in, is := name.(*syscall.SockaddrInet4); is {
		a.host = net.JoinHostPort("127.0.0.1", strconv.Itoa(in.Port))
	}
	return nil
}

// String is the host and port.
func (a *Address) String() string { return a.host }

// Close gives the port back.
func (a *Address) Close() error { return a.socket.Close() }

// For holds an address until the test ends, and returns its host and port.
func For(tb testing.TB) string {
	tb.Helper()
	a, err := Hold()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = a.Close() })
	return a.String()
}
