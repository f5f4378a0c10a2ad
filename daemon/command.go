package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
)

// pidRecordDelay is how long a command runs before its PID is written into the record.
const pidRecordDelay = time.Second

// wholeRun is the number of the command of a whole run among the commands of the run; the numbers
// of items begin with 1.
const wholeRun = 0

// commandWork runs one command that writes directly to the log.
func commandWork(ctx context.Context, r *run) error {
	var monitor *monitor
	var output *os.File
	err := r.onOwnStack(func() (err error) {
		if monitor, err = startMonitor(r); err != nil {
			return &workError{code: "start_failed", err: err}
		}
		if output, err = r.openLog(); err != nil {
			return &workError{code: "start_failed", err: fmt.Errorf("open the log: %w", err)}
		}
		return nil
	})
	if monitor != nil {
		defer monitor.stop()
	}
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }() // the command has its own descriptor; the daemon wrote nothing to this one
	p, exit, err := r.execute(ctx, wholeRun, func() *keeper.Command {
		values := r.values("")
		return r.command(wholeRun, "", output, r.def.Timeout, values, "JOBDIR_RESULT="+r.scratch.path("result.json"))
	})
	if err != nil {
		return err
	}
	r.commands.noteEnd(p) // kept until the record contains the exit
	r.exit = &exit
	fields, resultErr := r.readResult("result.json")
	for _, f := range r.takeRetryAfter(fields) {
		r.report.setField(f)
	}
	if exit.TimedOut {
		return r.timeoutError()
	}
	if err := exitError(exit); err != nil {
		return err
	}
	if resultErr != nil {
		return &workError{code: "bad_result", err: resultErr}
	}
	return nil
}

// command returns a command of the job for the keeper. It contains a whole environment, so callers
// do not keep it after the start.
func (r *run) command(item int, name string, output *os.File, timeout time.Duration, values catalog.Values,
	extra ...string,
) *keeper.Command {
	return &keeper.Command{
		Args: r.def.Command(values), Dir: r.def.Folder(values), Env: r.environment(values, extra...),
		Output: output, Grace: r.grace, Mark: r.marks(), ScanOnExit: item == wholeRun, Timeout: timeout,
		Key: keeper.Key{Operation: r.id.String(), Run: r.number, Item: item}, Report: r.exitName(item), Label: name,
		Wanted: r.mayStart,
	}
}

// mayStart reports whether a command may start: the run has not ended, no cancel was requested, and
// the work is not paused.
func (r *run) mayStart() bool {
	return r.ctx.Err() == nil && !r.gate.pauseRequested() && !r.owner.RequestPending(r.id, statefs.Cancel,
		statefs.ForceCancel)
}

// onOwnStack calls do on a new goroutine and waits for it. The goroutine that waits for a command,
// perhaps for days, would otherwise keep a stack as large as its deepest call needed.
func (r *run) onOwnStack(do func() error) error {
	done := make(chan error, 1)
	go func() { done <- r.guard(func(context.Context, *run) error { return do() }) }()
	return <-done
}

// execute starts the command of an item, or takes over the command of an earlier daemon, and waits
// until the command and its descendants have ended. If the daemon stops and leaves commands
// running, execute does not wait and returns errDetached. It returns no Running if it started none.
func (r *run) execute(ctx context.Context, item int, command func() *keeper.Command) (keeper.Running,
	keeper.Exit, error,
) {
	p := r.commands.claim(item)
	if p == nil {
		begin := func() (err error) {
			p, err = r.startCommand(ctx, command())
			return err
		}
		var err error
		if item == wholeRun {
			err = r.onOwnStack(begin)
		} else {
			err = begin() // a worker starts one command after another
		}
		if err != nil {
			return nil, keeper.Exit{}, err
		}
	}
	defer r.gate.ended(p)
	if item == wholeRun {
		r.pid.Store(int64(p.PID()))
		defer time.AfterFunc(pidRecordDelay, func() {
			r.pidSettled.Store(true)
			r.onPhase()
		}).Stop()
	}
	if !r.awaitCommand(ctx, p) {
		r.detached.Store(true)
		return p, keeper.Exit{}, errDetached
	}
	exit := p.Exit()
	if r.endedByShutdown(ctx, exit) {
		r.detached.Store(true)
		return p, keeper.Exit{}, errDetached
	}
	if exit.Err != nil {
		r.logger.Warn("command ended with trouble", "id", r.id, "error", exit.Err)
	}
	if cause := causeOf(exit); cause != nil && ctx.Err() == nil {
		r.end(cause) // an earlier daemon or the keeper ended it
	}
	return p, exit, nil
}

// shutdownNotice is how much later than its commands the daemon may receive SIGTERM when the
// machine shuts down.
const shutdownNotice = 250 * time.Millisecond

// endedByShutdown reports whether a machine shutdown ended the command: it sends SIGTERM to the
// daemon as well. Such an exit is not a result of the work. Another sender of SIGTERM leaves no
// trace, so the function waits up to shutdownNotice for the daemon's own signal.
func (r *run) endedByShutdown(ctx context.Context, exit keeper.Exit) bool {
	if exit.Signal != "SIGTERM" || exit.Cause != "" || ctx.Err() != nil {
		return isClosed(r.detaching) && exit.Signal == "SIGTERM" && exit.Cause == ""
	}
	timer := time.NewTimer(shutdownNotice)
	defer timer.Stop()
	select {
	case <-r.detaching:
		return true
	case <-ctx.Done(): // the run counts as interrupted then
	case <-timer.C:
	}
	return isClosed(r.detaching)
}

func (r *run) startCommand(ctx context.Context, command *keeper.Command) (keeper.Running, error) {
	p, err := r.launch(ctx, command)
	switch {
	case err == nil:
		return p, nil
	case errors.Is(err, keeper.ErrKeeperDied), errors.Is(err, keeper.ErrNoKeeper) && ctx.Err() == nil:
		r.gate.noteCutOff()
		return nil, &workError{code: "keeper_died", err: err}
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, &workError{code: "start_failed", err: err}
}

// awaitCommand waits until a command has ended, and ends the command when ctx ends. It returns
// false if the daemon stops first and leaves the command to its keeper. The keeper then enforces
// the grace period of a command that is being ended.
func (r *run) awaitCommand(ctx context.Context, p keeper.Running) (ended bool) {
	select {
	case <-p.Done():
		return true
	case <-ctx.Done():
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errDetached) {
		r.endCommand(p, cause)
	}
	select {
	case <-p.Done():
		return true
	case <-r.detaching:
		return false
	}
}

// exitError returns the error of an exit, or nil for exit code 0.
func exitError(exit keeper.Exit) error {
	switch {
	case errors.Is(exit.Err, keeper.ErrKeeperDied):
		return &workError{code: "keeper_died", err: exit.Err}
	case exit.Signal != "":
		return &workError{code: "signal", err: fmt.Errorf("ended by %s", exit.Signal)}
	case exit.Code > 0:
		return &workError{code: "exit_code", err: fmt.Errorf("exit code %d", exit.Code)}
	case exit.Code < 0:
		return &workError{code: "lost", err: errors.Join(errors.New("the exit code is not known"), exit.Err)}
	}
	return nil
}
