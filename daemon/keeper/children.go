package keeper

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/notify"
)

// children are the child processes that this process has started and waits for. Every other child
// is an orphan.
var children = childSet{pids: map[int]struct{}{}, reaped: make(chan struct{}, 1)}

type childSet struct {
	forking sync.Mutex // held during a fork, and while an orphan is reaped

	mu     sync.Mutex // guards pids
	pids   map[int]struct{}
	reaped chan struct{} // signals that a child was reaped, so that ReapOrphans looks for orphans hidden behind it
}

// fork starts a program; see forkLeader. Until fork returns, the child cannot be mistaken for an
// orphan.
func (o *childSet) fork(program string, args []string, attr *syscall.ProcAttr, dies bool) (*leader, error) {
	o.forking.Lock()
	defer o.forking.Unlock()
	l, err := forkLeader(program, args, attr, dies)
	if err == nil {
		o.mu.Lock()
		o.pids[l.pid] = struct{}{}
		o.mu.Unlock()
	}
	return l, err
}

// reap waits for a child that has exited. The child's PID is forgotten before the kernel can give
// it to another child.
func (o *childSet) reap(pid int, status *syscall.WaitStatus, usage *syscall.Rusage) error {
	o.mu.Lock()
	got, err := wait4(pid, status, syscall.WNOHANG, usage)
	if got == 0 && err == nil {
		// It has not exited. No watcher could see its end, so only this call can wait for it.
		o.mu.Unlock()
		_, err = wait4(pid, status, 0, usage)
		o.mu.Lock()
	}
	delete(o.pids, pid)
	o.mu.Unlock()
	notify.Wake(o.reaped)
	return err
}

func (o *childSet) has(pid int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.pids[pid]
	return ok
}

func wait4(pid int, status *syscall.WaitStatus, options int, usage *syscall.Rusage) (int, error) {
	for {
		got, err := syscall.Wait4(pid, status, options, usage)
		if !errors.Is(err, syscall.EINTR) {
			return got, err
		}
	}
}

// ReapOrphans reaps orphans until ctx ends. Orphans are processes that became children of this one
// because it is process 1 or a subreaper, and that would stay zombies otherwise. It ignores the
// processes that this package started, and every process in the session of this one: other parts of
// the program may have started those and wait for them.
func ReapOrphans(ctx context.Context) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	session, _ := unix.Getsid(0) // getsid(2) of this process always succeeds
	for {
		for reapOne(session) {
		}
		select {
		case <-ended:
		case <-children.reaped:
		case <-ctx.Done():
			return
		}
	}
}

// reapOne reaps one orphan, and reports whether there may be more.
func reapOne(session int) bool {
	children.forking.Lock()
	defer children.forking.Unlock()
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if errors.Is(err, unix.EINTR) {
		return true
	}
	if err != nil || info.Signo == 0 {
		return false
	}
	pid := sender(&info)
	if children.has(pid) {
		return false // the goroutine that started it reaps it, and then signals children.reaped
	}
	st, err := readStat(pid)
	switch {
	case errors.Is(err, errGone) && !isChild(pid):
		return true // that goroutine has reaped it since
	case err == nil && st.session != session:
		_, err := wait4(pid, nil, unix.WNOHANG, nil)
		return err == nil
	}
	// waitid(2) returns the same child again, so orphans behind it are found only in a list of all
	// processes.
	reapListed(session)
	return false
}

// sender returns si_pid, for which the type has no field; see waitid(2) and asm-generic/siginfo.h.
func sender(info *unix.Siginfo) int {
	words := (*[8]int32)(unsafe.Pointer(info)) //nolint:gosec // the fields behind si_code are a union in C
	if strconv.IntSize == 64 {
		return int(words[4])
	}
	return int(words[3])
}

// isChild reports whether this process has a child with the PID and has not reaped it. /proc may hide the
// child of another user.
func isChild(pid int) bool {
	err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return !errors.Is(err, unix.ECHILD)
}

// reapListed reaps all orphans that a pass over /proc finds.
func reapListed(session int) {
	pids, err := numbersIn("/proc")
	if err != nil {
		return
	}
	own := os.Getpid()
	for _, pid := range pids {
		s, err := readStat(pid)
		if err != nil || s.parent != own || !s.zombie() || s.session == session || children.has(pid) {
			continue
		}
		_, _ = wait4(pid, nil, unix.WNOHANG, nil) // it is a zombie of this process, so this succeeds
	}
}
