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
	failedItems bool
	wait        bool
	json        bool
	bulk        bulkOptions
}

func (a *app) retryCommand() *cobra.Command {
	var opts retryOptions
	cmd := &cobra.Command{
		Use:   "retry ID... | retry --status STATUS ...",
		Short: "Start operations again that failed, were cancelled or were only partly successful",
		Long: `retry starts an operation again that waits for a person. Of one that has ended it makes a new operation, whose ID it prints:
it inherits the items that went well and does the others.

With --wait it returns when they have ended, with the exit code of 'jobdir wait'.

Instead of IDs a filter chooses operations, all that did not end well: how many match is said first, and a question
asked. That needs a daemon.`,
		Example:           "  jobdir retry --status failed --job media/decode --since 1d",
		Args:              needs("an ID"),
		ValidArgsFunction: a.completeIDs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			if opts.bulk.given() {
				return a.bulk(cmd.Context(), conf, string(statefs.Retry), &opts.bulk, opts.json)
			}
			return a.retry(cmd.Context(), conf, opts, args)
		},
	}
	opts.bulk.byFilter(cmd)
	cmd.Flags().BoolVar(&opts.failedItems, "failed-items", false, "do only the items that failed, and nothing that was never begun")
	cmd.Flags().BoolVar(&opts.wait, "wait", false, "return when they have ended, with the outcome")
	jsonFlag(cmd, &opts.json)
	return cmd
}

func (a *app) retry(ctx context.Context, conf *loaded, opts retryOptions, texts []string) error {
	return a.reach(ctx, conf, func(c *client.Client) error {
		if !opts.wait {
			return resolveRemote(ctx, c).each(texts, func(id statefs.ID) error {
				_, err := a.retryOne(ctx, c, opts, id)
				return err
			})
		}
		ctx, stop := interruptible(ctx, 0)
		defer stop()
		var begun []statefs.ID
		err := resolveRecent(ctx, c).each(texts, func(id statefs.ID) error {
			again, err := a.retryOne(ctx, c, opts, id)
			if err == nil {
				begun = append(begun, again)
			}
			return err
		})
		return errors.Join(err, a.waitFor(ctx, c, waitOptions{json: opts.json}, begun))
	}, func(tree *statefs.Tree) error {
		if opts.wait {
			return &client.UnreachableError{Address: tree.Dir(), Err: errors.New("nothing ends before a daemon runs: start it with 'jobdir serve', or leave --wait away")}
		}
		ids, err := resolveLocal(tree).all(texts)
		if err != nil {
			return err
		}
		var failed []error
		for _, id := range ids {
			answer, err := requestTree(ctx, tree, id, statefs.Retry)
			switch {
			case errors.Is(err, statefs.ErrNotLive):
				failed = append(failed, &client.UnreachableError{Address: tree.Dir(), Err: errors.New("an operation that has ended is started again by the daemon: start it with 'jobdir serve'")})
			case err != nil:
				failed = append(failed, err)
			default:
				a.streams.say("%s; it waits on disk for a daemon", answer.Message)
			}
		}
		return errors.Join(failed...)
	})
}

// retryOne starts one operation again and says what came of it, and returns the ID of what does the work now.
func (a *app) retryOne(ctx context.Context, c *client.Client, opts retryOptions, id statefs.ID) (statefs.ID, error) {
	if opts.wait {
		op, err := c.Operation(ctx, id)
		if err != nil {
			return id, err
		}
		if op.State.Live() {
			// It has to go on first: what waits for a person is what a wait ends with.
			answer, err := c.Request(ctx, id, statefs.Retry, retryPatience)
			if err == nil && answer.ID != id {
				a.streams.say("operation %s does the same and has not ended: nothing new was made", answer.ID)
				return answer.ID, nil
			}
			if err == nil && !opts.json {
				a.streams.say("%s", answer.Message)
			}
			return id, err
		}
	}
	again, err := c.Retry(ctx, id, opts.failedItems)
	if err != nil {
		return id, err
	}
	if again.Operation != nil {
		id = again.Operation.ID
	}
	switch {
	case opts.json && opts.wait: // the outcome says the ID
		return id, nil
	case opts.json:
		return id, a.streams.json(again)
	case again.Operation != nil:
		return id, a.streams.line("%s", id)
	}
	a.streams.say("%s", again.Answer.Message)
	return id, nil
}

// retryPatience is how long a daemon may take to take up the retry of a live operation.
const retryPatience = time.Minute
