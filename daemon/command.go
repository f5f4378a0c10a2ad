package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/keeper"
)

// settleTime is how long a command runs before its PID is written into the record.
const settleTime = time.Second

// wholeRun is the number that the command of a whole run has among the commands of its run; those of items begin with 1.
const wholeRun = 0

// commandWork runs one command whose output is the log itself.
func commandWork(ctx context.Context, r *run) error {
	var monitor *monitor
	var output *os.File
	err := r.apart(func() (err error) {
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
	defer func() { _ = output.Close() }() // the command has its own descriptor; ours wrote nothing
	p, exit, err := r.execute(ctx, wholeRun, func() *keeper.Command {
		values := r.values("")
		return r.command(wholeRun, "", output, r.def.Timeout, values, "JOBDIR_RESULT="+r.scratch.path("result.json"))
	})
	if err != nil {
		return err
	}
	r.commands.ended(p) // until the record says how it ended
	r.exit = &exit
	fields, resultErr := r.readResult("result.json")
	for _, f := range r.takeAsk(fields) {
		r.report.set(f)
	}
	if exit.TimedOut {
		return r.outOfTime()
	}
	if err := exitError(exit); err != nil {
		return err
	}
	if resultErr != nil {
		return &workError{code: "bad_result", err: resultErr}
	}
	return nil
}

// command is a command of the job as the keeper gets it. It holds a whole environment, so nobody keeps it for longer than the start.
func (r *run) command(item int, name string, output *os.File, timeout time.Duration, values catalog.Values, extra ...string) *keeper.Command {
	return &keeper.Command{
		Args: r.def.Command(values), Dir: r.def.Folder(values), Env: r.environment(values, extra...),
		Output: output, Grace: r.grace, Mark: r.marks(), ScanOnExit: item == wholeRun, Timeout: timeout,
		Key: keeper.Key{Operation: r.id.String(), Run: r.number, Item: item}, Report: r.exitName(item), Label: name,
	}
}

// apart does something on a stack of its own. The goroutine that waits for a command, perhaps for days, would otherwise keep a stack as
// large as its deepest call needed for a moment.
func (r *run) apart(do func() error) error {
	done := make(chan error, 1)
	go func() { done <- r.guard(func(context.Context, *run) error { return do() }) }()
	return <-done
}

// execute starts the command of an item, or takes the one that an earlier daemon has started, and waits until it and its descendants have
// ended. When the daemon stops and leaves commands running it does not wait, and returns errLeft.
func (r *run) execute(ctx context.Context, item int, command func() *keeper.Command) (keeper.Running, keeper.Exit, error) {
	p := r.commands.claim(item)
	if p == nil {
		begin := func() (err error) {
			p, err = r.begin(ctx, command())
			return err
		}
		var err error
		if item == wholeRun {
			err = r.apart(begin)
		} else {
			err = begin() // a worker begins one command after another
		}
		if err != nil {
			return nil, keeper.Exit{}, err
		}
	}
	defer r.gate.ended(p)
	if item == wholeRun {
		r.pid.Store(int64(p.PID()))
		defer time.AfterFunc(settleTime, func() {
			r.settled.Store(true)
			r.phased()
		}).Stop()
	}
	if !r.await(ctx, p) {
		r.left.Store(true)
		return nil, keeper.Exit{}, errLeft
	}
	exit := p.Exit()
	if r.goesDown(ctx, exit) {
		r.left.Store(true)
		return nil, keeper.Exit{}, errLeft
	}
	if exit.Err != nil {
		r.logger.Warn("command ended with trouble", "id", r.id, "error", exit.Err)
	}
	if cause := causeOf(exit); cause != nil && ctx.Err() == nil {
		r.end(cause) // it was not this daemon that has ended it
	}
	return p, exit, nil
}

// shutdownNotice is how much later than its commands a daemon may get SIGTERM when the machine goes down.
const shutdownNotice = 250 * time.Millisecond

// goesDown reports whether a command was ended by a SIGTERM that is the daemon's too: a machine that goes down sends it to everybody. Such
// an end is no verdict of the work. Who else would send it leaves no trace, so it takes a moment to know.
func (r *run) goesDown(ctx context.Context, exit keeper.Exit) bool {
	if exit.Signal != "SIGTERM" || exit.Cause != "" || ctx.Err() != nil {
		return isClosed(r.leaving) && exit.Signal == "SIGTERM" && exit.Cause == ""
	}
	timer := time.NewTimer(shutdownNotice)
	defer timer.Stop()
	select {
	case <-r.leaving:
		return true
	case <-ctx.Done(): // it counts as interrupted then
	case <-timer.C:
	}
	return isClosed(r.leaving)
}

func (r *run) begin(ctx context.Context, command *keeper.Command) (keeper.Running, error) {
	p, err := r.launch(ctx, command)
	switch {
	case err == nil:
		return p, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, keeper.ErrKeeperDied):
		return nil, &workError{code: "keeper_died", err: err}
	}
	return nil, &workError{code: "start_failed", err: err}
}

// await waits until a command has ended, which it brings about when ctx ends. It returns false when the daemon stops before and leaves the
// command to its keeper, which keeps its grace period if it is being ended.
func (r *run) await(ctx context.Context, p keeper.Running) (ended bool) {
	select {
	case <-p.Done():
		return true
	case <-ctx.Done():
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errLeft) {
		p.End(causeText(cause))
	}
	select {
	case <-p.Done():
		return true
	case <-r.leaving:
		return false
	}
}

// exitError returns nil for an exit code of 0.
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
