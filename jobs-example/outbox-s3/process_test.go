package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a worker as jobdir would start it.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	kill *time.Timer

	mu    sync.Mutex
	said  bytes.Buffer
	more  chan struct{} // a line was written
	ended chan struct{} // the output has ended
}

// work starts a worker. It ends with the test at the latest.
func work(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(program(t), args...), more: make(chan struct{}, 1), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.kill = time.AfterFunc(testPatience, func() { _ = p.cmd.Process.Kill() })
	go p.read(out)
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.ended
		_ = p.cmd.Wait()
		p.kill.Stop()
		if t.Failed() {
			t.Logf("a worker said\n%s", p.text())
		}
	})
	return p
}

func (p *process) read(out io.Reader) {
	defer close(p.ended)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		p.mu.Lock()
		p.said.WriteString(line)
		p.mu.Unlock()
		select {
		case p.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// text is what it has said so far.
func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

func (p *process) count(part string) int { return strings.Count(p.text(), part) }

// says returns when the worker has said something that matches.
func (p *process) says(pattern string) {
	p.t.Helper()
	expected := regexp.MustCompile(pattern)
	for !expected.MatchString(p.text()) {
		select {
		case <-p.more:
		case <-p.ended:
			if !expected.MatchString(p.text()) {
				p.t.Fatalf("the worker has ended and never said %s\n%s", pattern, p.text())
			}
		}
	}
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// wait returns how the worker ended.
func (p *process) wait() syscall.WaitStatus {
	p.t.Helper()
	<-p.ended
	_ = p.cmd.Wait()
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return status
}

// exits checks the exit code.
func (p *process) exits(code int) {
	p.t.Helper()
	if status := p.wait(); !status.Exited() || status.ExitStatus() != code {
		p.t.Errorf("the worker ended with %#x, want the exit code %d\n%s", status, code, p.text())
	}
}

// stops ends the worker as jobdir does, and checks that it shows what ended it.
func (p *process) stops() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if status := p.wait(); !status.Signaled() || status.Signal() != syscall.SIGTERM {
		p.t.Errorf("the worker ended with %#x, want by SIGTERM\n%s", status, p.text())
	}
}
