package work

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
)

// pidRecordDelay is how long a command runs before its PID is written into the record.
const pidRecordDelay = time.Second

// commandWork runs one command that writes directly to the log.
func commandWork(ctx context.Context, r *Run) error {
	var monitor *monitor
	var output *os.File
	err := r.onOwnStack(func() (err error) {
		if monitor, err = startMonitor(r, nil); err != nil {
			return &Error{Code: "start_failed", Err: err}
		}
		if output, err = r.openLog(); err != nil {
			return &Error{Code: "start_failed", Err: fmt.Errorf("open the log: %w", err)}
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
		return r.command(wholeRun, "", output, r.def.Timeout, values, "JOBDIR_RESULT="+r.scratch.path(scratchResult))
	})
	if err != nil {
		return err
	}
	r.noteEnd(p) // kept until the record contains the exit
	r.usage.add(exit)
	r.outcome.Exit = &exit
	fields, resultErr := r.readResult(scratchResult)
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
		return &Error{Code: "bad_result", Err: resultErr}
	}
	return nil
}

// mayStart reports whether a command may start: the run has not ended, no cancel was requested, and
// the work is not paused.
func (r *Run) mayStart() bool {
	return r.ctx.Err() == nil && !r.PauseRequested() && !r.host.Owner.RequestPending(r.id, statefs.Cancel,
		statefs.ForceCancel)
}

// onOwnStack calls do on a new goroutine and waits for it. The goroutine that waits for a command,
// perhaps for days, would otherwise keep a stack as large as its deepest call needed.
func (r *Run) onOwnStack(do func() error) error {
	done := make(chan error, 1)
	go func() { done <- r.guard(func(context.Context, *Run) error { return do() }) }()
	return <-done
}

// execute starts the command of an item, or takes over the command of an earlier daemon, and waits
// until the command and its descendants have ended. If the daemon stops and leaves commands
// running, execute does not wait and returns ErrDetached. It returns no Running if it started none.
func (r *Run) execute(ctx context.Context, item int, command func() *keeper.Command) (keeper.Running,
	keeper.Exit, error,
) {
	p := r.claim(item)
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
	defer r.ended(p)
	if item == wholeRun {
		r.pid.Store(int64(p.PID()))
		defer time.AfterFunc(pidRecordDelay, func() {
			r.pidSettled.Store(true)
			r.changed()
		}).Stop()
	}
	if !r.await(ctx, p) || r.endedByShutdown(ctx, p.Exit()) {
		r.detached.Store(true)
		return p, keeper.Exit{}, ErrDetached
	}
	exit := p.Exit()
	if exit.Err != nil {
		r.host.Logger.Warn("command ended with an error", "id", r.id, "error", exit.Err)
	}
	if cause := causeOf(exit); cause != nil && ctx.Err() == nil {
		r.End(cause) // an earlier daemon or the keeper ended it
	}
	return p, exit, nil
}

func (r *Run) startCommand(ctx context.Context, command *keeper.Command) (keeper.Running, error) {
	p, err := r.launch(ctx, command)
	switch {
	case err == nil:
		return p, nil
	case errors.Is(err, keeper.ErrKeeperDied), errors.Is(err, keeper.ErrNoKeeper) && ctx.Err() == nil:
		r.noteCutOff()
		return nil, &Error{Code: "keeper_died", Err: err}
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, &Error{Code: "start_failed", Err: err}
}

// launch starts a command as soon as it may run.
func (r *Run) launch(ctx context.Context, command *keeper.Command) (p keeper.Running, err error) {
	command.Wanted = r.mayStart
	for ended := error(nil); ended == nil; ended = r.sleep(ctx, insideItem, retryEvery) {
		err = r.retryWhileExhausted(ctx, func() error { p, err = r.start(ctx, r.host.Starter, *command); return err })
		if !errors.Is(err, keeper.ErrUnwanted) {
			break // on ErrUnwanted a cancel is about to be carried out, unless it is withdrawn
		}
	}
	r.begun()
	return p, err
}

// takeRetryAfter removes the requested delay from a command's result and keeps it in the outcome.
// A delay that cannot be parsed is logged and ignored; then the delay of the job counts.
func (r *Run) takeRetryAfter(fields []field) []field {
	rest := fields[:0]
	for _, f := range fields {
		if f.name != retryMember {
			rest = append(rest, f)
			continue
		}
		if string(f.value) == "null" {
			continue // no delay requested
		}
		wait, err := parseRetryAfter(f.value, r.host.Owner.Now())
		if err != nil {
			r.logLine(fmt.Sprintf("  %s in the result is passed over: %v.", retryMember, err))
			continue
		}
		r.outcome.retryAfter = wait
	}
	return rest
}
