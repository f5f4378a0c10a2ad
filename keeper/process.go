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
	since      uint64 // no process of the tree started before, in the unit of the platform
	started    time.Time
	done       chan struct{}

	// These are of supervise alone; exit is everybody's to read when done is closed.
	exit   Exit
	errs   []error
	reaped bool

	mu       sync.Mutex
	limit    limit
	ending   bool      // End was called
	asked    bool      // it sent SIGTERM to the group, which was before the leader exited
	cause    string    // why, when asked
	endBy    time.Time // when SIGTERM becomes SIGKILL, when asked
	exited   bool      // the leader was seen to have exited: only supervise may signal now
	finished bool      // nothing is left that End could end
	failed   error     // a signal of End that could not be sent
}

// PID is the process number of the leader, which is also that of its process group and session.
func (p *Process) PID() int { return p.leader.pid }

// Done is closed when the leader was reaped and nothing of its tree is left.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit waits for Done and tells how the command ended.
func (p *Process) Exit() Exit {
	<-p.done
	return p.exit
}

// Stop sends SIGSTOP to the process group.
//
// When it returns nil, the signal is pending in every process of the group, all at one moment, and it can neither be
// caught nor ignored: none of them begins another instruction of its own, apart from the microseconds in which a
// processor is interrupted. A system call that is under way may still finish, so one last write may appear. Stop also waits
// until the leader is seen to have stopped, which takes some ten microseconds, but for no more than a quarter of a
// millisecond: a process that waits for a dead disk stops only when that answers. A stopped command may be stopped again.
func (p *Process) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending || p.exited {
		return fmt.Errorf("stop %q (PID %d): %w", p.name, p.leader.pid, ErrEnded)
	}
	if err := p.leader.signalGroup(unix.SIGSTOP); err != nil {
		return fmt.Errorf("stop %q (PID %d): %w", p.name, p.leader.pid, err)
	}
	if exited := p.leader.awaitStop(); exited {
		return fmt.Errorf("stop %q (PID %d): %w", p.name, p.leader.pid, ErrEnded)
	}
	p.limit.hold(time.Now())
	return nil
}

// Continue sends SIGCONT to the process group. It does nothing to a command that is not stopped.
func (p *Process) Continue() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending || p.exited {
		return fmt.Errorf("continue %q (PID %d): %w", p.name, p.leader.pid, ErrEnded)
	}
	if err := p.leader.signalGroup(unix.SIGCONT); err != nil {
		return fmt.Errorf("continue %q (PID %d): %w", p.name, p.leader.pid, err)
	}
	p.limit.release(time.Now())
	return nil
}

// End ends the command and all that it has started. It returns at once; Done tells when it is over.
//
// The group gets SIGTERM, then SIGCONT so that a stopped one can act on it, and SIGKILL when the leader has not exited
// after the grace period. What is left of the tree then gets the same one by one: SIGTERM, SIGCONT, and SIGKILL when
// the same grace period is over (but not before a tenth of it has passed since its own SIGTERM).
//
// The first call counts, all others do nothing. The cause is repeated in Exit.Cause if the command was alive.
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
	// A leader that is gone needs no signal: supervise sees it, and ending, and does the rest.
	if p.exited || p.leader.exited() {
		return
	}
	p.asked = true
	p.endBy = time.Now().Add(p.grace)
	p.cause = cause
	p.failed = errors.Join(p.terminateGroup(), p.leader.setDeadline(p.endBy))
}

func (p *Process) terminateGroup() error {
	if err := p.leader.signalGroup(unix.SIGTERM); err != nil {
		return err
	}
	return p.leader.signalGroup(unix.SIGCONT)
}

// supervise is the one goroutine of a Process: it waits for the leader, kills the group when the grace period is over,
// ends what is left, and reaps.
func (p *Process) supervise() {
	defer close(p.done)
	defer p.leader.close()
	for {
		err := p.leader.wait()
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			// Reaping blocks until the leader has exited, so nothing is lost but the kill after the grace period.
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

// leave ends what is left after the leader has exited, and reaps the leader.
func (p *Process) leave() {
	asked, scan, killBy := p.leaderExited()
	if p.leader.outlivedByPidfd() {
		p.reap()
	}
	empty, err := p.leader.leftGroup(!asked)
	p.note(err)
	for ; ; scan = true {
		if !empty || (scan && len(p.mark) > 0 && !p.unmarked()) {
			p.note(p.endRest(scan, killBy))
		}
		if p.finish(scan) {
			break
		}
	}
	if !p.reaped {
		p.reap()
	}
}

// unmarked reports whether nobody carries the marks any more, as is nearly always so. The one search for all commands that end tells
// it; when somebody does, or it cannot be told, a search for this command alone deals with that.
func (p *Process) unmarked() bool {
	gone, err := marks.clear(p.mark, p.since)
	return gone && err == nil
}

// leaderExited makes the signals supervise's own. It tells whether the group was asked to end, whether marks are to be
// searched for, and when SIGKILL is due.
func (p *Process) leaderExited() (asked, scan bool, killBy time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exited = true
	p.limit.end()
	p.exit.Cause, p.exit.TimedOut = p.cause, p.limit.over && p.asked
	p.note(p.failed)
	killBy = p.endBy
	if !p.asked {
		killBy = p.exit.At.Add(p.grace)
	}
	return p.asked, p.ending || p.scanOnExit, killBy
}

// finish makes End do nothing from now on, unless it was called since and a search is due.
func (p *Process) finish(scanned bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = scanned || !p.ending
	return p.finished
}

// note keeps err for Exit.Err; that somebody had already gone when he was signalled is no error.
func (p *Process) note(err error) {
	if err != nil && !errors.Is(err, unix.ESRCH) {
		p.errs = append(p.errs, err)
	}
}

func (p *Process) reap() {
	p.reaped = true
	var status syscall.WaitStatus
	var usage syscall.Rusage
	if err := children.reap(p.leader.pid, &status, &usage); err != nil {
		p.exit.Code = -1
		p.note(fmt.Errorf("exit status of %q (PID %d): %w", p.name, p.leader.pid, err))
		return
	}
	p.exit.setStatus(status, &usage)
}
