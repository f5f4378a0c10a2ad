package keeper

import (
	"errors"
	"sync"
	"syscall"
)

// children are the processes that this process has started and waits for. All others that become its children are orphans.
var children = offspring{pids: map[int]struct{}{}, reaped: make(chan struct{}, 1)}

type offspring struct {
	forking sync.Mutex // held during a fork, and while a child is taken for an orphan

	mu     sync.Mutex // guards pids
	pids   map[int]struct{}
	reaped chan struct{} // says that one of them is gone, so that an orphan behind it can be seen
}

// fork calls a function that starts a process. While it does, nobody takes the child for an orphan.
func (o *offspring) fork(start func() (pid int, err error)) error {
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

// reap waits for a child that has exited. Its number is forgotten before it can be given to another child.
func (o *offspring) reap(pid int, status *syscall.WaitStatus, usage *syscall.Rusage) error {
	o.mu.Lock()
	got, err := wait4(pid, status, syscall.WNOHANG, usage)
	if got == 0 && err == nil {
		// It has not exited: nobody could see its end, so only this can wait for it.
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

func (o *offspring) has(pid int) bool {
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
