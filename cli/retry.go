package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// retryFlags gives a command the flags of a retry.
func (o *requestOptions) retryFlags(a *app, cmd *cobra.Command) {
	o.stepFlags(a, cmd)
	o.flags.BoolVar(&o.failedItems, "failed-items", false,
		"do only the items that failed, and nothing that was never begun")
	addWait(cmd, &o.wait, "they have ended, with the outcome")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if o.step+o.reason+o.by != "" && (o.bulk.given() || o.failedItems) {
			return exit.Usagef("--step, --reason and --by are for IDs, and go neither with a filter nor with --failed-items")
		}
		return nil
	}
}

func (a *app) retry(ctx context.Context, conf *config.Loaded, opts *requestOptions, texts []string) error {
	return a.streams.Following(ctx, func(ctx context.Context) error { return a.retryAll(ctx, conf, opts, texts) })
}

func (a *app) retryAll(ctx context.Context, conf *config.Loaded, opts *requestOptions, texts []string) error {
	return a.reach(ctx, conf, func(c *client.Client) error {
		if !opts.wait.given {
			return resolveRemote(ctx, c).each(texts, func(id statefs.ID) error {
				_, err := a.retryOne(ctx, c, opts, id)
				return err
			})
		}
		ctx, stop := interruptible(ctx, "wait", opts.wait.limit)
		defer stop()
		var begun []statefs.ID
		err := resolveRemote(ctx, c).each(texts, func(id statefs.ID) error {
			again, err := a.retryOne(ctx, c, opts, id)
			if err == nil {
				begun = append(begun, again)
			}
			return opts.wait.noEffect(err)
		})
		if len(begun) == 0 {
			return err
		}
		return errors.Join(err, a.waitFor(ctx, c, waitOptions{json: opts.json}, begun))
	}, func(tree *statefs.Tree) error {
		if opts.wait.given {
			return &client.UnreachableError{
				Address: tree.Dir(),
				Err:     errors.New("nothing ends before a daemon runs: start it with 'jobdir serve', or leave --wait away"),
			}
		}
		ids, err := resolveLocal(tree).all(texts)
		if err != nil {
			return err
		}
		var failed []error
		for _, id := range ids {
			answer, err := retryInTree(ctx, tree, opts, id)
			switch {
			case errors.Is(err, statefs.ErrNotLive):
				failed = append(failed, &client.UnreachableError{
					Address: tree.Dir(),
					Err:     errors.New("an operation that has ended is started again by the daemon: start it with 'jobdir serve'"),
				})
			case err != nil:
				failed = append(failed, err)
			default:
				a.streams.Notice("%s; it waits on disk for a daemon", answer.Message)
			}
		}
		return errors.Join(failed...)
	})
}

// retryInTree leaves the request in the directory.
func retryInTree(ctx context.Context, tree *statefs.Tree, opts *requestOptions, id statefs.ID) (*client.Answer, error) {
	if rec, err := tree.ReadRecord(id); err == nil && len(rec.Steps) > 0 || opts.step != "" {
		return stepActionInTree(ctx, tree, id, statefs.Retry, opts.args(), nil)
	}
	return requestTree(ctx, tree, id, statefs.Retry, nil)
}

// retryOne retries one operation, prints the outcome, and returns the ID of the operation that does the work
// now.
func (a *app) retryOne(ctx context.Context, c *client.Client, opts *requestOptions, id statefs.ID) (statefs.ID, error) {
	if opts.wait.given {
		op, err := c.Operation(ctx, id)
		if err != nil {
			return id, err
		}
		if op.State.Live() {
			// Retry first and wait afterwards: a wait ends immediately for an operation that waits for a
			// person.
			var answer *client.Answer
			if len(op.Steps) > 0 || opts.step != "" {
				answer, err = c.StepAction(ctx, id, statefs.Retry, opts.args(), retryTimeout)
			} else {
				answer, err = c.Request(ctx, id, statefs.Retry, retryTimeout)
			}
			if err == nil && answer.ID != id {
				a.streams.Notice("operation %s does the same and has not ended: nothing new was made", answer.ID)
				return answer.ID, nil
			}
			if err == nil && !opts.json {
				a.streams.Notice("%s", answer.Message)
			}
			if err == nil && answer.Changed != nil && !*answer.Changed {
				return id, exit.With(exit.Failure)
			}
			return id, err
		}
	}
	again, err := a.retryNow(ctx, c, opts, id)
	if err != nil {
		return id, err
	}
	if again.Operation != nil {
		id = again.Operation.ID
	}
	switch {
	case opts.json && opts.wait.given: // the outcome includes the ID
		return id, nil
	case opts.json:
		return id, a.streams.JSON(again)
	case again.Operation != nil:
		return id, a.streams.Line("%s", id)
	}
	a.streams.Notice("%s", again.Answer.Message)
	return id, nil
}

// retryNow requests a retry. It sends the user's name only for an operation with steps, whose record keeps
// it.
func (a *app) retryNow(ctx context.Context, c *client.Client, opts *requestOptions,
	id statefs.ID,
) (*client.Retried, error) {
	if opts.failedItems {
		return c.Retry(ctx, id, true)
	}
	op, err := c.Operation(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(op.Steps) == 0 && opts.step == "" {
		return c.Retry(ctx, id, false)
	}
	var wait time.Duration
	if !op.Ended() {
		wait = stepActionTimeout
	}
	return c.RetryStep(ctx, id, opts.args(), wait)
}

// retryTimeout is how long a daemon may take to carry out the retry of a live operation.
const retryTimeout = time.Minute
