package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pidfdProcess is a process that is held by a pidfd (pidfd_open(2)): signals and waits reach this
// process, never a later one with the same PID.
//
// The descriptor is registered with the runtime's poller, so waiting for any number of processes costs no threads.
type pidfdProcess struct {
	pid  int
	fd   int
	file *os.File
	conn syscall.RawConn
}

// openPidfd opens a pidfd of the process that has the PID now. It returns unix.ESRCH when there is
// none.
func openPidfd(pid int) (*pidfdProcess, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	return adoptPidfd(pid, fd)
}

// adoptPidfd takes ownership of fd. It closes fd when it fails.
func adoptPidfd(pid, fd int) (*pidfdProcess, error) {
	// The poller accepts only descriptors in non-blocking mode.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		_ = unix.Close(fd) // err is the cause to report
		return nil, err
	}
	h := &pidfdProcess{pid: pid, fd: fd, file: os.NewFile(uintptr(fd), "pidfd")}
	conn, err := h.file.SyscallConn()
	if err == nil {
		err = h.file.SetReadDeadline(time.Time{})
	}
	if err != nil {
		_ = h.file.Close() // err is the cause to report
		return nil, err
	}
	h.conn = conn
	return h, nil
}

// wait returns nil when the process has exited (it may be a zombie), and os.ErrDeadlineExceeded at
// the deadline.
func (h *pidfdProcess) wait() error {
	var pollErr error
	err := h.conn.Read(func(uintptr) bool {
		var gone bool
		gone, pollErr = h.poll()
		return gone || pollErr != nil
	})
	return errors.Join(err, pollErr)
}

// awaitExit waits for the process until deadline (zero: forever) or until the context is done.
func (h *pidfdProcess) awaitExit(ctx context.Context, deadline time.Time) error {
	if err := h.setDeadline(deadline); err != nil {
		return err
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		// It fails only for a descriptor without deadlines, and this one accepted a deadline above.
		_ = h.setDeadline(time.Unix(1, 0))
	})
	err := h.wait()
	if !stop() {
		<-woken
	}
	return err
}

// setDeadline bounds present and later waits; the zero time means no deadline.
func (h *pidfdProcess) setDeadline(t time.Time) error { return h.file.SetReadDeadline(t) }

// exited reports whether all threads of the process have ended.
func (h *pidfdProcess) exited() bool {
	gone, err := h.poll()
	return gone && err == nil
}

func (h *pidfdProcess) poll() (bool, error) {
	for {
		fds := []unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0, err
		}
	}
}

func (h *pidfdProcess) signal(sig unix.Signal) error {
	if err := unix.PidfdSendSignal(h.fd, sig, nil, 0); err != nil {
		return fmt.Errorf("%s to process %d: %w", unix.SignalName(sig), h.pid, err)
	}
	return nil
}

// close closes the descriptor. Nothing was written to it, so no error matters.
func (h *pidfdProcess) close() { _ = h.file.Close() }
