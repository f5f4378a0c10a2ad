package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// process is a server that was started.
type process struct {
	cmd   *exec.Cmd
	said  bytes.Buffer
	ended chan struct{}
}

// starter starts processes on one thread that lives as long as this program, with which the kernel ends them.
var starter = sync.OnceValue(func() chan func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

func start(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &p.said
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.said
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // stop ended it, or the next call to it fails
	}()
	return p, nil
}

// ready calls try until it succeeds: a server says in its own way, or not at all, that it serves.
func (p *process) ready(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-p.ended:
			return fmt.Errorf("%s ended: %s", p.cmd.Path, p.said.String())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s does not serve: %w", p.cmd.Path, err), p.stop())
		}
	}
}

// stop ends the server: an interrupt, and what cannot be refused when that is not enough.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended
	late := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	<-p.ended
	return nil
}
