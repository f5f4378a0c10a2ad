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

// stopPatience is how long Stop waits to see the leader stopped after the signal was sent.
const stopPatience = 250 * time.Microsecond

// Codes of a child's change of state in siginfo_t (sigaction(2), asm-generic/siginfo.h).
const (
	childExited = 1
	childKilled = 2
	childDumped = 3
)

// leader is the first process of a command and stands for its group, whose number is the same.
type leader struct {
	held *held
	pid  int

	// byPidfd: the group is signalled through the pidfd, which is right at any time. Otherwise it is signalled by
	// number, which is right only until the leader is reaped.
	byPidfd bool
}

// forkLeader starts a program. dies has the kernel kill it when the calling thread ends (prctl(2), PR_SET_PDEATHSIG).
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
	h, err := adopt(pid, fd)
	if err != nil {
		// It is our child and not reaped, so the number is still its own. err says what went wrong.
		_ = unix.Kill(-pid, unix.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		return nil, fmt.Errorf("hold process %d by a pidfd, which needs Linux 5.4 or newer: %w", pid, err)
	}
	return &leader{held: h, pid: pid, byPidfd: groupByPidfd()}, nil
}

func (l *leader) wait() error                   { return l.held.wait() }
func (l *leader) exited() bool                  { return l.held.exited() }
func (l *leader) setDeadline(t time.Time) error { return l.held.setDeadline(t) }
func (l *leader) close()                        { l.held.close() }

// outlivedByPidfd tells whether the group can be signalled after the leader was reaped.
func (l *leader) outlivedByPidfd() bool { return l.byPidfd }

// signalGroup sends sig to all processes of the group at one moment. With byPidfd unix.ESRCH means that there is none.
func (l *leader) signalGroup(sig unix.Signal) error {
	var err error
	if l.byPidfd {
		err = unix.PidfdSendSignal(l.held.fd, sig, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	} else {
		err = unix.Kill(-l.pid, sig)
	}
	if err != nil {
		return fmt.Errorf("signal %d to process group %d: %w", int(sig), l.pid, err)
	}
	return nil
}

// leftGroup is called when the leader has exited. It asks the rest of the group to end, if ask says so, and tells
// whether the group is known to be empty.
//
// With byPidfd the leader was reaped before, so ESRCH means that nobody is left: the usual case costs one system call.
// Otherwise the zombie of the leader hides that, and only a look into /proc can tell.
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

// groupLives tells whether the number of the group is still its own.
func (l *leader) groupLives() bool { return !errors.Is(l.signalGroup(0), unix.ESRCH) }

// awaitStop returns when the leader is seen to have stopped or exited, or when stopPatience is over.
//
// There is no call that blocks for a bounded time; a blocking waitid(2) could hold the caller for as long as a disk does
// not answer. WNOWAIT leaves the state for others to see.
func (l *leader) awaitStop() (exited bool) {
	for until := time.Now().Add(stopPatience); ; {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PIDFD, l.held.fd, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return errors.Is(err, unix.ECHILD)
		}
		if err == nil && info.Signo != 0 {
			return info.Code == childExited || info.Code == childKilled || info.Code == childDumped
		}
		if !time.Now().Before(until) {
			return false
		}
		// The leader may need this very processor to notice the signal. sched_yield(2) always succeeds on Linux.
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}

// groupByPidfd asks the kernel, once, whether a pidfd can stand for a process group (Linux 6.9, pidfd_send_signal(2)).
var groupByPidfd = sync.OnceValue(func() bool {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	// This process may lead no group, which is ESRCH; a kernel that does not know the flag says EINVAL.
	err = unix.PidfdSendSignal(fd, 0, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	return err == nil || errors.Is(err, unix.ESRCH)
})

// setCloseOnExec marks all descriptors from first on. Before Linux 5.11 it goes through them one by one.
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
