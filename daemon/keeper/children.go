package keeper

import (
	"errors"
	"sync"
	"syscall"
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

// fork calls start, which starts a process. Until fork returns, the child cannot be mistaken for an
// orphan.
func (o *childSet) fork(start func() (pid int, err error)) error {
	o.forking.Lock()
	defer o.forking.Unlock()
	pid, err := start()
	if err == nil {
		o.mu.Lock()
		o.pids[pid] = struct{}{}
		o.mu.Unlock()
	}
	return err
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
	select {
	case o.reaped <- struct{}{}:
	default:
	}
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
