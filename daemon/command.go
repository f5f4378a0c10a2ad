package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/keeper"
)

// commandWork runs one command whose output is the log itself.
func commandWork(ctx context.Context, r *run) error {
	monitor, err := startMonitor(r)
	if err != nil {
		return &workError{code: "start_failed", err: err}
	}
	defer monitor.stop()
	values := catalog.Values{Params: r.params, ID: r.id.String()}
	output, err := r.openLog()
	if err != nil {
		return &workError{code: "start_failed", err: fmt.Errorf("open the log: %w", err)}
	}
	defer func() { _ = output.Close() }() // the command has its own descriptor; ours wrote nothing
	exit, err := r.execute(ctx, values, output, true, "JOBDIR_RESULT="+r.scratch.path("result.json"))
	if err != nil {
		return err
	}
	r.exit = &exit
	fields, resultErr := r.takeResult("result.json")
	for _, f := range fields {
		r.report.set(f)
	}
	if err := exitError(exit); err != nil {
		return err
	}
	if resultErr != nil {
		return &workError{code: "bad_result", err: resultErr}
	}
	return nil
}

// execute starts a command and waits until it and its descendants have ended.
func (r *run) execute(ctx context.Context, values catalog.Values, output *os.File, whole bool, extra ...string) (keeper.Exit, error) {
	if err := os.MkdirAll(r.owner.ArtifactsPath(r.id), 0o750); err != nil {
		return keeper.Exit{}, &workError{code: "start_failed", err: err}
	}
	p, err := r.launch(ctx, keeper.Command{
		Args: r.def.Command(values), Dir: r.def.Folder(values), Env: r.environment(values, extra...),
		Output: output, Grace: r.grace, Mark: r.marks(), ScanOnExit: whole,
	})
	if err != nil {
		if ctx.Err() != nil {
			return keeper.Exit{}, context.Cause(ctx)
		}
		return keeper.Exit{}, &workError{code: "start_failed", err: err}
	}
	defer r.gate.ended(p)
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.End(context.Cause(ctx).Error())
		<-p.Done()
	}
	exit := p.Exit()
	if exit.Err != nil {
		r.logger.Warn("command ended with trouble", "id", r.id, "error", exit.Err)
	}
	return exit, nil
}

// exitError returns nil for an exit code of 0.
func exitError(exit keeper.Exit) error {
	switch {
	case exit.Signal != "":
		return &workError{code: "signal", err: fmt.Errorf("ended by %s", exit.Signal)}
	case exit.Code > 0:
		return &workError{code: "exit_code", err: fmt.Errorf("exit code %d", exit.Code)}
	case exit.Code < 0:
		return &workError{code: "lost", err: errors.Join(errors.New("the exit code is not known"), exit.Err)}
	}
	return nil
}
