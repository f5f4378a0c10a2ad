package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/statefs"
)

type waitOptions struct {
	timeout time.Duration
	json    bool
}

func (a *app) waitCommand() *cobra.Command {
	var opts waitOptions
	cmd := &cobra.Command{
		Use:   "wait ID...",
		Short: "Wait until operations have ended, and exit with their outcome",
		Long: `wait prints one line for each operation when it ends. The exit code is the outcome: 0 success, 1 failure, 2 partial,
130 cancelled; of several, that of the worst: failure, cancelled, partial, success. 75 means that the outcome is not
known yet: the time was over, or somebody stopped the waiting.

An ID may be shortened to a beginning that only one live operation has, or to its end, such as r42, also of an
operation that has ended and was submitted today or yesterday.`,
		Args:              needs("an ID"),
		ValidArgsFunction: a.completeIDs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.wait(cmd.Context(), conf, opts, args)
		},
	}
	cmd.Flags().DurationVar(&opts.timeout, "timeout", 0, "give up after this time (default: never)")
	jsonFlag(cmd, &opts.json)
	return cmd
}

// ending is how one operation ended.
type ending struct {
	ID     statefs.ID      `json:"id"`
	Footer json.RawMessage `json:"footer"`

	result statefs.Result
	line   string
	err    error
}

var (
	errTimeOver = errors.New("the time of --timeout is over; the operations go on")
	errStopped  = errors.New("stopped waiting; the operations go on")
)

func (a *app) wait(ctx context.Context, conf *loaded, opts waitOptions, texts []string) error {
	ctx, stop := interruptible(ctx, opts.timeout)
	defer stop()
	c, err := a.connect(ctx, conf)
	if err != nil {
		return err
	}
	defer c.Close()
	ids, err := resolveRecent(ctx, c).all(texts)
	if err != nil {
		return err
	}
	ended := make(chan ending)
	var wait sync.WaitGroup
	defer wait.Wait()
	for _, id := range ids {
		wait.Go(func() {
			footer, err := c.Wait(ctx, id)
			if err != nil {
				ended <- ending{ID: id, err: err}
				return
			}
			ended <- ending{ID: id, Footer: footer.Raw, result: footer.Result, line: summary(id, footer)}
		})
	}
	var all []ending
	var failed []error
	for range ids {
		e := <-ended
		switch {
		case e.err != nil:
			failed = append(failed, e.err)
			continue
		case !opts.json:
			failed = append(failed, a.streams.line("%s", e.line))
		}
		all = append(all, e)
	}
	if opts.json {
		failed = append(failed, a.streams.json(append([]ending{}, all...)))
	}
	if cause := context.Cause(ctx); cause != nil {
		a.streams.say("%v", cause)
		return &codeError{code: exitTemporary}
	}
	if err := errors.Join(failed...); err != nil {
		return explainCut(err)
	}
	return worst(all)
}

// worst makes the outcome of several operations the exit code.
func worst(all []ending) error {
	for _, result := range []statefs.Result{statefs.Failure, statefs.CancelledResult, statefs.Partial} {
		if slices.ContainsFunc(all, func(e ending) bool { return e.result == result }) {
			return &codeError{code: outcome(result)}
		}
	}
	return nil
}

// interruptible returns a context that ends with a signal or, when that is above zero, a time. Its cause says which.
func interruptible(ctx context.Context, timeout time.Duration) (_ context.Context, stop func()) {
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
			cancel(errTimeOver)
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
		wait.Wait()
	}
}
