package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

type retryOptions struct {
	failedItems bool
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
	jsonFlag(cmd, &opts.json)
	return cmd
}

func (a *app) retry(ctx context.Context, conf *loaded, opts retryOptions, texts []string) error {
	return a.reach(ctx, conf, func(c *client.Client) error {
		ids, err := resolveRemote(ctx, c).all(texts)
		if err != nil {
			return err
		}
		var failed []error
		for _, id := range ids {
			again, err := c.Retry(ctx, id, opts.failedItems)
			switch {
			case err != nil:
				failed = append(failed, err)
			case opts.json:
				failed = append(failed, a.streams.json(again))
			case again.Operation != nil:
				failed = append(failed, a.streams.line("%s", again.Operation.ID))
			default:
				a.streams.say("%s", again.Answer.Message)
			}
		}
		return errors.Join(failed...)
	}, func(tree *statefs.Tree) error {
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
