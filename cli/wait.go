package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

type waitOptions struct {
	timeout time.Duration
	until   string
	json    bool
}

func (a *app) waitCommand() *cobra.Command {
	var opts waitOptions
	cmd := &cobra.Command{
		Use:   "wait ID...",
		Short: "Wait until operations have ended, and exit with their outcome",
		Long: `wait prints one line for each operation when it ends. The exit code is the outcome: 0 success, 1 failure, 2
partial, 130 cancelled, 3 when it waits for a person, or comes after one that does; of several, that of the worst:
failure, a person, cancelled, partial, success. 75 means that the outcome is not known yet: the time was over, or the
wait was interrupted.

With --for running it returns as soon as they run, with 0. An operation that has ended before counts by its outcome.

An ID may be shortened to its end, such as r42 or 42, or to a beginning that only one live operation has.`,
		Example:           "  jobdir wait r42 --timeout 1h\n  jobdir wait --for running r42",
		Args:              needs("an ID"),
		ValidArgsFunction: a.completeIDs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			if opts.until != forEnd && opts.until != forRunning {
				return exit.Usagef("--for %q: it is %s or %s", opts.until, forEnd, forRunning)
			}
			return a.streams.Following(cmd.Context(), func(ctx context.Context) error { return a.wait(ctx, conf, opts, args) })
		},
	}
	cmd.Flags().StringVar(&opts.until, "for", forEnd, "what to wait for: end or running")
	// the flag exists
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{forEnd, forRunning},
		cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().DurationVar(&opts.timeout, "timeout", 0, "give up after this time (default: never)")
	jsonFlag(cmd, &opts.json)
	return cmd
}

// The conditions to wait for.
const (
	forEnd     = "end"
	forRunning = string(statefs.Running)
)

// waitResult is how one operation ended.
type waitResult struct {
	ID statefs.ID `json:"id"`
	// State is set for an operation that waits for a person or, with --for running, runs; Footer for a
	// finished one.
	State  statefs.State   `json:"state,omitempty"`
	Error  *statefs.Fault  `json:"error,omitempty"`
	Footer json.RawMessage `json:"footer"`

	result statefs.Result
	line   string
	err    error
}

var errStopped = errors.New("stopped waiting; the operations continue")

func (a *app) wait(ctx context.Context, conf *config.Loaded, opts waitOptions, texts []string) error {
	ctx, stop := interruptible(ctx, "timeout", opts.timeout)
	defer stop()
	c, err := a.connect(ctx, conf)
	if err != nil {
		return err
	}
	defer c.Close()
	ids, err := resolveRemote(ctx, c).all(texts)
	if err != nil {
		return err
	}
	return a.waitFor(ctx, c, opts, ids)
}

// waitFor waits for operations, prints the result of each, and returns the combined outcome.
func (a *app) waitFor(ctx context.Context, c *client.Client, opts waitOptions, ids []statefs.ID) error {
	ended := make(chan waitResult)
	var wait sync.WaitGroup
	defer wait.Wait()
	for _, id := range ids {
		wait.Go(func() {
			if opts.until == forRunning {
				ended <- waitResultOf(c.WaitRunning(ctx, id))
			} else {
				ended <- waitResultOf(c.WaitSettled(ctx, id))
			}
		})
	}
	var all []waitResult
	var failed []error
	for range ids {
		e := <-ended
		switch {
		case e.err != nil:
			failed = append(failed, e.err)
			continue
		case !opts.json:
			failed = append(failed, a.streams.Line("%s", e.line))
		}
		all = append(all, e)
	}
	if opts.json {
		failed = append(failed, a.streams.JSON(append([]waitResult{}, all...)))
	}
	if cause := context.Cause(ctx); errors.Is(cause, exit.ErrReaderGone) {
		return cause
	} else if cause != nil {
		a.streams.Notice("%v", cause)
		return exit.With(exit.Temporary)
	}
	if err := errors.Join(failed...); err != nil {
		return explainCut(err)
	}
	return worst(all)
}

// waitResultOf returns the result of waiting for an operation.
func waitResultOf(op *client.Operation, err error) waitResult {
	if err != nil {
		return waitResult{err: err}
	}
	if op.WaitsForPerson() {
		return waitResult{ID: op.ID, State: op.State, Error: op.Error, line: personLine(op)}
	}
	if !op.Ended() {
		return waitResult{ID: op.ID, State: op.State, line: op.ID.String() + ": " + string(op.State)}
	}
	footer, err := client.ParseFooter(op.Footer)
	if err != nil {
		return waitResult{ID: op.ID, err: err}
	}
	return waitResult{ID: op.ID, Footer: op.Footer, result: footer.Result, line: summary(op.ID, footer)}
}

// personLine explains why an operation waits for a person, and which commands help.
func personLine(op *client.Operation) string {
	if w := op.Waiting; w != nil && !w.NeedsPerson.IsZero() {
		return fmt.Sprintf("%s comes after %s, which waits for a person: 'jobdir show %s' has the reason, 'jobdir retry %s' continues it, 'jobdir cancel %s' ends it",
			op.ID, w.NeedsPerson, w.NeedsPerson, w.NeedsPerson, w.NeedsPerson)
	}
	a := op.Attention
	if a == nil { // an older daemon
		a = statefs.AttentionOf(op.ID, op.State, &statefs.Record{Reason: op.Reason, Error: op.Error})
	}
	return op.ID.String() + " " + a.Sentence(op.ID)
}

// worst returns the worst outcome of several operations as the exit code.
func worst(all []waitResult) error {
	if !slices.ContainsFunc(all, func(e waitResult) bool { return e.result == statefs.Failure }) &&
		slices.ContainsFunc(all, func(e waitResult) bool { return e.State != "" && e.State != statefs.Running }) {
		return exit.With(exit.Person)
	}
	for _, result := range []statefs.Result{statefs.Failure, statefs.CancelledResult, statefs.Partial} {
		if slices.ContainsFunc(all, func(e waitResult) bool { return e.result == result }) {
			return exit.With(exit.Outcome(result))
		}
	}
	return nil
}

// interruptible returns a context that a signal ends or, if positive, the timeout of a flag. Its cause tells
// which.
func interruptible(ctx context.Context, flag string, timeout time.Duration) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var over <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		context.AfterFunc(ctx, func() { timer.Stop() })
		over = timer.C
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		select {
		case <-ctx.Done():
		case <-signals:
			cancel(errStopped)
		case <-over:
			cancel(fmt.Errorf("the time of --%s is over; the operations continue", flag))
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
		wait.Wait()
	}
}
