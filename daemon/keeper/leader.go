package keeper

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxRSSUnit is the unit of ru_maxrss in bytes (getrusage(2)).
const maxRSSUnit = 1024

// stopTimeout is how long Stop waits for the leader to stop after the signal was sent.
const stopTimeout = 250 * time.Microsecond

// childDumped is the last of the codes in siginfo_t for the end of a child; those after it are for stops (sigaction(2),
// asm-generic/siginfo.h).
const childDumped = 3

// leader is the first process of a command. Its PID is also the number of its process group.
type leader struct {
	*pidfdProcess

	// byPidfd: the group is signalled through the pidfd, which is safe at any time. Otherwise it is
	// signalled by number, which is safe only until the leader is reaped.
	byPidfd bool
}

// forkLeader starts a program. With dies the kernel kills it when the forking thread ends
// (prctl(2), PR_SET_PDEATHSIG).
func forkLeader(program string, args []string, attr *syscall.ProcAttr, dies bool) (*leader, error) {
	fd := -1
	attr.Sys = &syscall.SysProcAttr{Setsid: true, PidFD: &fd}
	if dies {
		attr.Sys.Pdeathsig = unix.SIGKILL
	}
	pid, err := syscall.ForkExec(program, args, attr)
	if err != nil {
		return nil, err
	}
	h, err := adoptPidfd(pid, fd)
	if err != nil {
		// It is our child and not reaped, so its PID cannot have been reused. err is the cause to
		// report.
		_ = unix.Kill(-pid, unix.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		return nil, fmt.Errorf("hold process %d by a pidfd, which needs Linux 5.4 or newer: %w", pid, err)
	}
	return &leader{pidfdProcess: h, byPidfd: groupByPidfd()}, nil
}

// signalGroup sends sig to all processes of the group at once. With byPidfd, unix.ESRCH means that
// the group is empty.
func (l *leader) signalGroup(sig unix.Signal) error {
	var err error
	if l.byPidfd {
		err = unix.PidfdSendSignal(l.fd, sig, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	} else {
		err = unix.Kill(-l.pid, sig)
	}
	if err != nil {
		return fmt.Errorf("signal %d to process group %d: %w", int(sig), l.pid, err)
	}
	return nil
}

// leftGroup is called when the leader has exited. If ask is set, it sends SIGTERM and SIGCONT to
// the rest of the group. It reports whether the group is known to be empty.
//
// With byPidfd the leader was reaped before, so ESRCH means an empty group: the usual case costs
// one system call. Otherwise the leader's zombie hides that, and only a search of /proc can tell.
func (l *leader) leftGroup(ask bool) (empty bool, err error) {
	if !ask {
		return l.byPidfd && !l.groupLives(), nil
	}
	err = l.signalGroup(unix.SIGTERM)
	if errors.Is(err, unix.ESRCH) {
		return true, nil
	}
	return false, errors.Join(err, l.signalGroup(unix.SIGCONT))
}

// groupLives reports whether the group still has members, so that its number cannot have been
// reused.
func (l *leader) groupLives() bool { return !errors.Is(l.signalGroup(0), unix.ESRCH) }

// awaitStop returns when the leader has stopped or exited, or after stopTimeout.
//
// No system call waits for this with a time limit; a blocking waitid(2) could hold the caller for
// as long as a disk does not answer. WNOWAIT leaves the state for other waiters.
func (l *leader) awaitStop() (exited bool) {
	for until := time.Now().Add(stopTimeout); ; {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PIDFD, l.fd, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return errors.Is(err, unix.ECHILD)
		}
		if err == nil && info.Signo != 0 {
			return info.Code <= childDumped
		}
		if !time.Now().Before(until) {
			return false
		}
		// The leader may need this very processor to notice the signal. sched_yield(2) always succeeds on Linux.
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}

// groupByPidfd asks the kernel, once, whether a pidfd can signal a process group (Linux 6.9,
// pidfd_send_signal(2)).
var groupByPidfd = sync.OnceValue(func() bool {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	// This process may lead no group, which is ESRCH; a kernel that does not know the flag returns
	// EINVAL.
	err = unix.PidfdSendSignal(fd, 0, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	return err == nil || errors.Is(err, unix.ESRCH)
})

// setCloseOnExec marks all descriptors from first on. Before Linux 5.11 it marks them one by one.
func setCloseOnExec(first int) {
	if unix.CloseRange(uint(first), ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	numbers, err := numbersIn("/proc/self/fd")
	if err != nil {
		return
	}
	for _, fd := range numbers {
		if fd >= first {
			unix.CloseOnExec(fd)
		}
	}
}
