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

	"github.com/jobdir/jobdir/client"
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
130 cancelled, 3 when it waits for a person; of several, that of the worst: failure, a person, cancelled, partial, success.
75 means that the outcome is not known yet: the time was over, or somebody stopped the waiting.

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
	ID statefs.ID `json:"id"`
	// State is set for one that waits for a person, and Footer for one that has ended.
	State  statefs.State   `json:"state,omitempty"`
	Error  *statefs.Fault  `json:"error,omitempty"`
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
			ended <- awaitEnding(ctx, c, id)
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

// awaitEnding waits until an operation has ended or waits for a person.
func awaitEnding(ctx context.Context, c *client.Client, id statefs.ID) ending {
	op, err := c.Rest(ctx, id)
	if err != nil {
		return ending{ID: id, err: err}
	}
	if op.WaitsForPerson() {
		return ending{ID: id, State: op.State, Error: op.Error, line: personLine(op)}
	}
	footer, err := client.ParseFooter(op.Footer)
	if err != nil {
		return ending{ID: id, err: err}
	}
	return ending{ID: id, Footer: op.Footer, result: footer.Result, line: summary(id, footer)}
}

// personLine says why an operation waits for a person, and which commands help.
func personLine(op *client.Operation) string {
	if op.State == statefs.WaitingApproval {
		return fmt.Sprintf("%s waits for an approval: 'jobdir approve %s' lets it go on, 'jobdir reject %s' ends it", op.ID, op.ID, op.ID)
	}
	why := op.Reason
	if op.Error != nil {
		why = op.Error.Message
	}
	if why == "" {
		why = string(op.State)
	}
	return fmt.Sprintf("%s waits for a person: %s; when that is mended, 'jobdir retry %s' goes on, 'jobdir cancel %s' ends it", op.ID, why, op.ID, op.ID)
}

// worst makes the outcome of several operations the exit code.
func worst(all []ending) error {
	if !slices.ContainsFunc(all, func(e ending) bool { return e.result == statefs.Failure }) &&
		slices.ContainsFunc(all, func(e ending) bool { return e.State != "" }) {
		return &codeError{code: exitPerson}
	}
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
