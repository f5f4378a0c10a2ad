package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/backend"
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
		if o.step+o.reason+o.by != "" && (o.filter.given() || o.failedItems) {
			return exit.Usagef("--step, --reason and --by are for IDs, and go neither with a filter nor with --failed-items")
		}
		return nil
	}
}

// retry retries first and waits afterwards: a wait ends immediately for an operation that waits for a person.
func (o *requestOptions) retry(ctx context.Context, s *session, texts []string) error {
	return s.streams.Following(ctx, func(ctx context.Context) error {
		b, err := s.open(ctx, "")
		if err != nil {
			return err
		}
		if o.wait.given && b.Away != "" {
			return &client.UnreachableError{
				Address: b.Away,
				Err:     errors.New("nothing ends before a daemon runs: start it with 'jobdir serve', or leave --wait away"),
			}
		}
		if o.wait.given {
			var stop func()
			ctx, stop = interruptible(ctx, "wait", o.wait.limit)
			defer stop()
		}
		ids, err := b.IDs(ctx, texts)
		if err != nil {
			return err
		}
		var begun []statefs.ID
		err = each(ids, func(id statefs.ID) error {
			again, err := o.retryOne(ctx, s, b, id)
			if err == nil {
				begun = append(begun, again)
			}
			return o.wait.noEffect(err)
		})
		if !o.wait.given || len(begun) == 0 {
			return err
		}
		return errors.Join(err, waitFor(ctx, s, b.Client, forEnd, begun))
	})
}

// retryOne retries one operation, prints the outcome, and returns the ID of the operation that does the work
// now.
func (o *requestOptions) retryOne(ctx context.Context, s *session, b *backend.Backend, id statefs.ID,
) (statefs.ID, error) {
	again, err := b.Retry(ctx, id, &backend.Retry{Args: o.args(), FailedItems: o.failedItems, Await: o.wait.given})
	if err != nil {
		return id, err
	}
	if again.Operation != nil {
		id = again.Operation.ID
	}
	switch answer := again.Answer; {
	case o.wait.given && answer != nil && answer.ID != id:
		s.streams.Notice("operation %s does the same and has not ended: nothing new was made", answer.ID)
		return answer.ID, nil
	case o.wait.given && answer != nil:
		if !s.json {
			s.streams.Notice("%s", answer.Message)
		}
		if answer.Changed != nil && !*answer.Changed {
			return id, exit.With(exit.Failure)
		}
		return id, nil
	case s.json && o.wait.given: // the outcome includes the ID
		return id, nil
	case s.json && b.Away == "":
		return id, s.streams.JSON(again)
	case again.Operation != nil:
		return id, s.streams.Line("%s", id)
	}
	s.streams.Notice("%s", again.Answer.Message)
	return id, nil
}
