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

// ErrEnded is returned by Stop and Continue when the command has exited or is being ended.
var ErrEnded = errors.New("the command has ended or is being ended")

// A Process is a command that was started. Its methods may be called from any goroutine.
type Process struct {
	name       string
	leader     *leader
	mark       []string
	grace      time.Duration
	scanOnExit bool
	since      uint64 // no process of the tree started earlier; in ticks since boot
	started    time.Time
	done       chan struct{}

	// Only supervise uses these; exit may be read by any goroutine once done is closed.
	exit Exit
	errs []error

	limit    TimeLimit
	mu       sync.Mutex
	ending   bool      // End was called
	termSent bool      // End sent SIGTERM to the group, before the leader exited
	cause    string    // the argument of that End
	endBy    time.Time // when SIGTERM becomes SIGKILL, after End
	exited   bool      // the leader has exited: only supervise may signal now
	finished bool      // no process is left for End to end
	failed   error     // a signal of End that could not be sent
}

// PID is the PID of the leader, which is also the number of its process group and session.
func (p *Process) PID() int { return p.leader.pid }

// Done is closed when the leader was reaped and no process of its tree is left.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit waits for Done and returns how the command ended.
func (p *Process) Exit() Exit {
	<-p.done
	return p.exit
}

// Stop sends SIGSTOP to the process group.
//
// When it returns nil, the signal is pending in every process of the group, sent to all at once,
// and it can neither be caught nor ignored: no process executes another instruction of its own,
// apart from the microseconds until a processor is interrupted. A system call that is under way may
// still finish, so one last write may appear. Stop also waits until the leader has stopped, which
// takes some ten microseconds, but no longer than stopTimeout: a process that waits for a dead disk
// stops only when that answers. A stopped command may be stopped again.
func (p *Process) Stop() error { return p.setStopped(true, "stop", unix.SIGSTOP) }

// Continue sends SIGCONT to the process group. It does nothing to a command that is not stopped.
func (p *Process) Continue() error { return p.setStopped(false, "continue", unix.SIGCONT) }

func (p *Process) setStopped(stopped bool, what string, sig unix.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := ErrEnded
	if !p.ending && !p.exited {
		err = p.leader.signalGroup(sig)
	}
	if err == nil && stopped && p.leader.awaitStop() {
		err = ErrEnded
	}
	if err != nil {
		return fmt.Errorf("%s %q (PID %d): %w", what, p.name, p.leader.pid, err)
	}
	p.limit.SetPaused(stopped)
	return nil
}

// End ends the command and all its descendants. It returns at once; Done is closed when they have
// ended.
//
// The group gets SIGTERM, then SIGCONT so that a stopped process can act on it, and SIGKILL when
// the leader has not exited after the grace period. Each process left of the tree then gets the
// same signals: SIGTERM, SIGCONT, and SIGKILL when the same grace period is over (but not before a
// tenth of it has passed since its own SIGTERM).
//
// Only the first call counts. If the command was alive, cause becomes Exit.Cause.
func (p *Process) End(cause string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(cause)
}

func (p *Process) endLocked(cause string) {
	if p.ending || p.finished {
		return
	}
	p.ending = true
	// A leader that has exited needs no signal: supervise notices that, and the ending flag, and
	// does the rest.
	if p.exited || p.leader.exited() {
		return
	}
	p.termSent = true
	p.endBy = time.Now().Add(p.grace)
	p.cause = cause
	p.failed = errors.Join(p.terminateGroup(), p.leader.setDeadline(p.endBy))
}

// Kill ends the command like End, without a grace period: the group gets SIGKILL at once, even when
// End was called before. What is left of the tree outside of the group gets SIGTERM and, a tenth of
// the grace period later, SIGKILL.
func (p *Process) Kill(cause string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(cause)
	if !p.termSent || p.exited {
		return
	}
	p.endBy = time.Now()
	p.failed = errors.Join(p.failed, p.leader.setDeadline(p.endBy)) // supervise sends SIGKILL when it has passed
}

func (p *Process) terminateGroup() error {
	if err := p.leader.signalGroup(unix.SIGTERM); err != nil {
		return err
	}
	return p.leader.signalGroup(unix.SIGCONT)
}

// supervise is the one goroutine of a Process. It waits for the leader, kills the group when the
// grace period is over, ends the rest of the tree, and reaps the leader.
func (p *Process) supervise() {
	defer close(p.done)
	defer p.leader.close()
	for {
		err := p.leader.wait()
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			// Reaping blocks until the leader has exited, so only the kill after the grace period
			// is lost.
			p.note(fmt.Errorf("wait for %q (PID %d): %w", p.name, p.leader.pid, err))
			break
		}
		p.note(p.leader.setDeadline(time.Time{}))
		p.note(p.leader.signalGroup(unix.SIGKILL))
	}
	p.exit.At = time.Now()
	p.leave()
	p.exit.Err = errors.Join(p.errs...)
}

// leave ends the rest of the tree after the leader has exited, and reaps the leader.
func (p *Process) leave() {
	asked, scan, killBy := p.leaderExited()
	if p.leader.byPidfd { // the group can be signalled after the leader was reaped
		p.reap()
	}
	empty, err := p.leader.leftGroup(!asked)
	p.note(err)
	for ; ; scan = true {
		// The scanner is shared by all ending commands, and mostly finds nothing. If it does, or does not
		// know, a sweep for this command alone follows.
		if !empty || scan && len(p.mark) > 0 && !scanner.noneMarked(p.mark, p.since) {
			p.note(p.endRest(scan, killBy))
		}
		if p.finish(scan) {
			break
		}
	}
	if !p.leader.byPidfd {
		p.reap()
	}
}

// leaderExited reserves signalling for supervise. It returns whether the group has been sent
// SIGTERM, whether to search for marks, and when SIGKILL is due.
func (p *Process) leaderExited() (asked, scan bool, killBy time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exited = true
	p.limit.End()
	p.exit.Cause, p.exit.TimedOut = p.cause, p.cause == CauseTimeout
	p.note(p.failed)
	killBy = p.endBy
	if !p.termSent {
		killBy = p.exit.At.Add(p.grace)
	}
	return p.termSent, p.ending || p.scanOnExit, killBy
}

// finish makes later calls of End do nothing, unless End was called before and a search for marks
// is still due.
func (p *Process) finish(scanned bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = scanned || !p.ending
	return p.finished
}

// note keeps err for Exit.Err. A signal to a process that has already exited is not an error.
func (p *Process) note(err error) {
	if err != nil && !errors.Is(err, unix.ESRCH) {
		p.errs = append(p.errs, err)
	}
}

func (p *Process) reap() {
	var status syscall.WaitStatus
	var usage syscall.Rusage
	if err := children.reap(p.leader.pid, &status, &usage); err != nil {
		p.exit.Code = -1
		p.note(fmt.Errorf("exit status of %q (PID %d): %w", p.name, p.leader.pid, err))
		return
	}
	p.exit.setStatus(status, &usage)
}
