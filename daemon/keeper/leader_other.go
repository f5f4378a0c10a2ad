//go:build darwin

package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxRSSUnit is the unit of ru_maxrss in bytes (getrusage(2) of macOS).
const maxRSSUnit = 1

// groupPollInterval is how often the rest of a group is polled: no event of this system reports
// that a group is empty.
const groupPollInterval = 50 * time.Millisecond

// leader is the first process of a command and represents its group. On this system it stays a
// zombie, and so keeps the number, until the rest of the group has ended. Descendants that left the
// group are not found: there is no search for marks.
type leader struct {
	pid  int
	gone chan struct{} // closed when the process has exited; it is not reaped then
	err  error         // why watching failed; read it after gone is closed

	mu       sync.Mutex
	deadline time.Time
	changed  chan struct{} // closed, and replaced, when deadline changes
}

// forkLeader starts a program. This system cannot make it die with its parent.
func forkLeader(program string, args []string, attr *syscall.ProcAttr, _ bool) (*leader, error) {
	attr.Sys = &syscall.SysProcAttr{Setsid: true}
	pid, err := syscall.ForkExec(program, args, attr)
	if err != nil {
		return nil, err
	}
	l := &leader{pid: pid, gone: make(chan struct{}), changed: make(chan struct{})}
	go l.watch()
	return l, nil
}

// watch returns when the process has exited: kqueue reports that without reaping it (kqueue(2),
// EVFILT_PROC).
func (l *leader) watch() {
	defer close(l.gone)
	queue, err := unix.Kqueue()
	if err != nil {
		l.err = fmt.Errorf("watch process %d: %w", l.pid, err)
		return
	}
	defer unix.Close(queue)
	unix.CloseOnExec(queue)
	change := []unix.Kevent_t{{Fflags: unix.NOTE_EXIT}}
	unix.SetKevent(&change[0], l.pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	events := make([]unix.Kevent_t, 1)
	for {
		n, err := unix.Kevent(queue, change, events, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		// ESRCH: it exited before the watch began.
		if err != nil && !errors.Is(err, unix.ESRCH) {
			l.err = fmt.Errorf("watch process %d: %w", l.pid, err)
		}
		if err != nil || n > 0 {
			return
		}
	}
}

func (l *leader) wait() error {
	for {
		l.mu.Lock()
		deadline, changed := l.deadline, l.changed
		l.mu.Unlock()
		var due <-chan time.Time
		if !deadline.IsZero() {
			due = time.After(time.Until(deadline))
		}
		select {
		case <-l.gone:
			return l.err
		case <-due:
			return os.ErrDeadlineExceeded
		case <-changed:
		}
	}
}

func (l *leader) exited() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

func (l *leader) setDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = t
	close(l.changed)
	l.changed = make(chan struct{})
	return nil
}

func (l *leader) close() { <-l.gone }

func (l *leader) outlivedByPidfd() bool { return false }

func (l *leader) signalGroup(sig unix.Signal) error {
	if err := unix.Kill(-l.pid, sig); err != nil {
		return fmt.Errorf("signal %d to process group %d: %w", int(sig), l.pid, err)
	}
	return nil
}

// groupLives reports whether the group has a member besides the leader's zombie: kill(2) ignores
// zombies.
func (l *leader) groupLives() bool { return unix.Kill(-l.pid, 0) == nil }

func (l *leader) leftGroup(ask bool) (empty bool, err error) {
	if !l.groupLives() {
		return true, nil
	}
	if !ask {
		return false, nil
	}
	return false, errors.Join(l.signalGroup(unix.SIGTERM), l.signalGroup(unix.SIGCONT))
}

// awaitStop does not wait on this system: the signal is pending, which is what Stop promises.
func (l *leader) awaitStop() (exited bool) { return l.exited() }

// now is not used on this system, which has no search.
func now() (uint64, error) { return 0, nil }

func setCloseOnExec(first int) {
	names, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, name := range names {
		var fd int
		if _, err := fmt.Sscanf(name.Name(), "%d", &fd); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
}

// endRest ends the rest of the group. Processes that carry the marks are not searched for.
func (p *Process) endRest(_ bool, killBy time.Time) error {
	tick := time.NewTicker(groupPollInterval)
	defer tick.Stop()
	for p.leader.groupLives() {
		if !time.Now().Before(killBy) {
			p.leader.signalGroup(unix.SIGKILL)
		}
		<-tick.C
	}
	return nil
}

// EndMarked needs to read the environment of other processes, which this system does not offer.
func EndMarked(context.Context, []string, time.Duration, ...int) (ended int, err error) {
	return 0, fmt.Errorf("end marked processes: %w on this system", errors.ErrUnsupported)
}

// EndStrays also needs to read the environment of other processes.
func EndStrays(context.Context, string, time.Duration, ...int) (ended int, err error) {
	return 0, fmt.Errorf("end marked processes: %w on this system", errors.ErrUnsupported)
}
