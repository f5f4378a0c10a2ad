package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

type retryOptions struct {
	about       stepActionOptions
	failedItems bool
	wait        waitFlag
	json        bool
	bulk        bulkOptions
}

func (a *app) retryCommand() *cobra.Command {
	opts := retryOptions{about: stepActionOptions{action: statefs.Retry}}
	cmd := &cobra.Command{
		Use:   "retry ID... | retry --status STATUS ...",
		Short: "Start operations again that failed, were cancelled or were only partly successful",
		Long: `retry starts an operation again that waits for a person. Of one that has ended it makes a new operation,
whose ID it prints: it inherits the items that succeeded and repeats the others. An operation with steps continues at
the step that failed or was not done; with --step it goes back to an earlier one: that step and all that need it run
again.

With --wait it returns when they have ended, with the exit code of 'jobdir wait'; with --wait=1h at most after that
time, with 75.

Instead of IDs a filter chooses operations, those that did not succeed: the command prints how many match, and requires
a confirmation. That needs a daemon.`,
		Example:           "  jobdir retry r42 --step split\n  jobdir retry --status failed --job media/decode --since 1d",
		Args:              needs("an ID"),
		ValidArgsFunction: a.completeIDs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			if (opts.about.step != "" || opts.about.reason != "" || opts.about.by != "") &&
				(opts.bulk.given() || opts.failedItems) {
				return usagef("--step, --reason and --by are for IDs, and go neither with a filter nor with --failed-items")
			}
			if opts.bulk.given() {
				return a.bulk(cmd.Context(), conf, string(statefs.Retry), &opts.bulk, opts.json)
			}
			return a.following(cmd.Context(), func(ctx context.Context) error { return a.retry(ctx, conf, opts, args) })
		},
	}
	opts.bulk.byFilter(cmd)
	opts.about.flags(a, cmd)
	cmd.Flags().BoolVar(&opts.failedItems, "failed-items", false,
		"do only the items that failed, and nothing that was never begun")
	addWait(cmd, &opts.wait, "they have ended, with the outcome")
	jsonFlag(cmd, &opts.json)
	return cmd
}

func (a *app) retry(ctx context.Context, conf *loaded, opts retryOptions, texts []string) error {
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
				a.streams.notice("%s; it waits on disk for a daemon", answer.Message)
			}
		}
		return errors.Join(failed...)
	})
}

// retryInTree leaves the request in the directory.
func retryInTree(ctx context.Context, tree *statefs.Tree, opts retryOptions, id statefs.ID) (*client.Answer, error) {
	if rec, err := tree.ReadRecord(id); err == nil && len(rec.Steps) > 0 || opts.about.step != "" {
		return stepActionInTree(ctx, tree, id, statefs.Retry, opts.about.args(), nil)
	}
	return requestTree(ctx, tree, id, statefs.Retry, nil)
}

// retryOne retries one operation, prints the outcome, and returns the ID of the operation that does the work
// now.
func (a *app) retryOne(ctx context.Context, c *client.Client, opts retryOptions, id statefs.ID) (statefs.ID, error) {
	if opts.wait.given {
		op, err := c.Operation(ctx, id)
		if err != nil {
			return id, err
		}
		if op.State.Live() {
			// Retry first and wait afterwards: a wait ends immediately for an operation that waits for a
			// person.
			var answer *client.Answer
			if len(op.Steps) > 0 || opts.about.step != "" {
				answer, err = c.StepAction(ctx, id, statefs.Retry, opts.about.args(), retryTimeout)
			} else {
				answer, err = c.Request(ctx, id, statefs.Retry, retryTimeout)
			}
			if err == nil && answer.ID != id {
				a.streams.notice("operation %s does the same and has not ended: nothing new was made", answer.ID)
				return answer.ID, nil
			}
			if err == nil && !opts.json {
				a.streams.notice("%s", answer.Message)
			}
			if err == nil && answer.Changed != nil && !*answer.Changed {
				return id, &codeError{code: exitFailure}
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
		return id, a.streams.json(again)
	case again.Operation != nil:
		return id, a.streams.line("%s", id)
	}
	a.streams.notice("%s", again.Answer.Message)
	return id, nil
}

// retryNow requests a retry. It sends the user's name only for an operation with steps, whose record keeps
// it.
func (a *app) retryNow(ctx context.Context, c *client.Client, opts retryOptions,
	id statefs.ID,
) (*client.Retried, error) {
	if opts.failedItems {
		return c.Retry(ctx, id, true)
	}
	op, err := c.Operation(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(op.Steps) == 0 && opts.about.step == "" {
		return c.Retry(ctx, id, false)
	}
	var wait time.Duration
	if !op.Ended() {
		wait = stepActionTimeout
	}
	return c.RetryStep(ctx, id, opts.about.args(), wait)
}

// retryTimeout is how long a daemon may take to carry out the retry of a live operation.
const retryTimeout = time.Minute
