package keeper

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// held is a process that is held by a pidfd (pidfd_open(2)): signals and waits reach it and never one that got its number later.
//
// The descriptor is registered with the runtime's poller, so waiting for any number of processes costs no threads.
type held struct {
	pid  int
	fd   int
	file *os.File
	conn syscall.RawConn
}

// hold opens a pidfd of the process that has the number now; unix.ESRCH when there is none.
func hold(pid int) (*held, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	return adopt(pid, fd)
}

// adopt takes over fd, also when it fails.
func adopt(pid, fd int) (*held, error) {
	// Only a descriptor in non-blocking mode is given to the poller.
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd) // err says what went wrong
		return nil, err
	}
	h := &held{pid: pid, fd: fd, file: os.NewFile(uintptr(fd), "pidfd")}
	conn, err := h.file.SyscallConn()
	if err == nil {
		err = h.file.SetReadDeadline(time.Time{})
	}
	if err != nil {
		_ = h.file.Close() // err says what went wrong
		return nil, err
	}
	h.conn = conn
	return h, nil
}

// wait returns nil when the process has exited (it may be a zombie), os.ErrDeadlineExceeded when the deadline has come.
func (h *held) wait() error {
	var pollErr error
	err := h.conn.Read(func(uintptr) bool {
		var gone bool
		gone, pollErr = h.poll()
		return gone || pollErr != nil
	})
	return errors.Join(err, pollErr)
}

// setDeadline bounds the present and later waits; the zero time is none.
func (h *held) setDeadline(t time.Time) error { return h.file.SetReadDeadline(t) }

// exited tells whether all threads of the process have ended.
func (h *held) exited() bool {
	gone, err := h.poll()
	return gone && err == nil
}

func (h *held) poll() (bool, error) {
	for {
		fds := []unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0, err
		}
	}
}

func (h *held) signal(sig unix.Signal) error {
	if err := unix.PidfdSendSignal(h.fd, sig, nil, 0); err != nil {
		return fmt.Errorf("%s to process %d: %w", unix.SignalName(sig), h.pid, err)
	}
	return nil
}

// close gives the descriptor back. Nothing was written to it, so there is nothing that could be lost.
func (h *held) close() { _ = h.file.Close() }
