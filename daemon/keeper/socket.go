package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
)

// listenAt opens a socket that is accessible to this user alone from the start. The caller holds
// the lock that belongs to it, so an existing socket is stale.
func listenAt(ctx context.Context, path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	name, done, err := machine.SocketName(path)
	if err != nil {
		return nil, err
	}
	defer done()
	// The mode of the socket before bind(2) becomes the mode of its file.
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return files.WithRawDescriptor(raw, func(fd int) error { return unix.Fchmod(fd, 0o600) })
	}}
	l, err := config.Listen(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	listener, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listen on %s: no unix socket but %T", path, l), l.Close())
	}
	listener.SetUnlinkOnClose(false)
	return listener, nil
}

// dialAt connects to a socket and returns the connection and the PID of the listening process. A
// process of another user is refused, unless that is root.
func dialAt(ctx context.Context, path string) (*channel, int, error) {
	name, done, err := machine.SocketName(path)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	conn, err := new(net.Dialer).DialUnix(ctx, "unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, 0, err
	}
	pid, err := peer(conn)
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("connect to %s: %w", path, err), conn.Close())
	}
	return newChannel(newSocket(conn)), pid, nil
}

// peer returns the PID of the process at the other end, which must belong to this user or to root.
func peer(conn *net.UnixConn) (pid int, err error) {
	var cred *unix.Ucred
	err = files.WithDescriptor(conn, func(fd int) (err error) {
		cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("find out who is there: %w", err)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return 0, fmt.Errorf("user %d is neither user %d nor root: %w", cred.Uid, os.Geteuid(), os.ErrPermission)
	}
	return int(cred.Pid), nil
}

// unixSocket is a connection that carries descriptors (unix(7), SCM_RIGHTS).
type unixSocket struct {
	*net.UnixConn
	control []byte
}

func newSocket(conn *net.UnixConn) *unixSocket {
	return &unixSocket{conn, make([]byte, unix.CmsgSpace(4*maxWaitingFiles))}
}

// read is recvmsg(2). The kernel ends it after the first bytes that came with descriptors, so
// descriptors and bytes stay in order.
func (u *unixSocket) read(p []byte) (n int, files []*os.File, err error) {
	n, used, flags, _, err := u.ReadMsgUnix(p, u.control)
	if used > 0 {
		var parseErr error
		files, parseErr = filesIn(u.control[:used])
		err = errors.Join(err, parseErr)
	}
	switch {
	case err != nil:
	case flags&unix.MSG_CTRUNC != 0:
		err = fmt.Errorf("%w: more descriptors than fit, or the limit of open files is reached", errFrame)
	case n == 0:
		err = net.ErrClosed
	}
	return n, files, err
}

func filesIn(control []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		if messages[i].Header.Level != unix.SOL_SOCKET || messages[i].Header.Type != unix.SCM_RIGHTS {
			continue
		}
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func (u *unixSocket) closeWrite() {
	_ = errors.Join(u.CloseWrite(), u.SetReadDeadline(time.Now().Add(time.Second))) // the reader sees the error
}

func (u *unixSocket) write(p []byte, file *os.File) error {
	if file == nil {
		_, err := u.Write(p)
		return err
	}
	var n int
	err := files.WithDescriptor(file, func(fd int) (err error) {
		n, _, err = u.WriteMsgUnix(p, unix.UnixRights(fd), nil)
		return err
	})
	if err != nil || n == len(p) {
		return err
	}
	_, err = u.Write(p[n:])
	return err
}
