package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

func (a *app) deliveryActionCommand(ask statefs.DeliveryAction, short string) *cobra.Command {
	var opts deliveryRequest
	opts.action = ask
	cmd := &cobra.Command{
		Use:   fmt.Sprintf("%s ENTRY|ID... | %s --target TEXT ...", ask, ask),
		Short: short,
		Long: short + `.

ENTRY is as 'jobdir outbox' shows it, ID.N-KIND; an ID alone means all that the operation has to deliver. Both may be
shortened to the end of the ID: r42 or 42, r42.1-webhook. Without a daemon the request waits on disk for the next one.

Instead of names a filter chooses deliveries: the command prints how many match, and requires a confirmation. That
needs a daemon. A retry tries each target with one delivery at once, and with the others when that succeeds.`,
		Args: needs("an entry or ID"),
		RunE: a.runs(func(ctx context.Context, s *session, texts []string) error {
			opts.args.By = userName()
			if opts.filter.given() {
				return opts.applyFilter(ctx, s)
			}
			return opts.request(ctx, s, texts)
		}),
	}
	cmd.Flags().StringVar(&opts.args.Reason, "reason", "", "noted in the log of the daemon")
	cmd.Flags().Bool("all", false, "all that there are")
	opts.filter.addFlags(cmd, deliveryFilters, "entries", "all", "list them")
	if ask == statefs.RetryDelivery {
		addWait(cmd, &opts.wait, "each was tried, with the error, and 1 when one failed")
	}
	return cmd
}

// deliveryRequest is a request for deliveries.
type deliveryRequest struct {
	action statefs.DeliveryAction
	args   statefs.Args
	wait   waitFlag
	filter filter
}

func (r *deliveryRequest) request(ctx context.Context, s *session, texts []string) error {
	if _, err := r.args.JSON(); err != nil {
		return exit.Usagef("%w", err)
	}
	b, err := s.open(ctx, waitsOnDisk)
	if err != nil {
		return err
	}
	if b.Away != "" && r.wait.given {
		s.streams.Notice("nothing is delivered before a daemon starts: leave out --wait")
	}
	entries, err := b.Entries(ctx, texts)
	if err != nil {
		return err
	}
	return each(entries, func(entry string) error {
		answers, err := b.RequestDelivery(ctx, entry, r.action, r.args, r.wait.atMost())
		for i := range answers {
			s.streams.Notice("%s", answers[i].Message)
			err = errors.Join(err, printEntries(s.streams, answers[i].Entries))
		}
		return err
	})
}

// printEntries prints the state of entries. It returns an error if one was not tried or failed again.
func printEntries(out term.Streams, entries []client.DeliveryAnswerEntry) error {
	code := exit.Success
	for _, e := range entries {
		line := e.Entry + "\t" + string(e.Status)
		switch {
		case e.Tried == nil:
		case !*e.Tried:
			line += "\tit was not tried in this time, and stays before all others"
			code = exit.Temporary
		case e.Status != statefs.DeliveryDelivered:
			line += "\t" + term.Printable(e.Error)
			code = max(code, exit.Failure)
		}
		if err := out.Line("%s", line); err != nil {
			return err
		}
	}
	if code != exit.Success {
		return exit.With(code)
	}
	return nil
}

// applyFilter applies an action to all deliveries that match: it prints their number, asks for
// confirmation, acts, and reports each failure.
func (r *deliveryRequest) applyFilter(ctx context.Context, s *session) error {
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	found, err := c.Deliveries().Bulk(ctx, r.action, r.filter.Values, r.args, true)
	if err != nil {
		return err
	}
	count := term.Plural(found.Total, "delivery matches", "deliveries match")
	act, err := mayAct(&r.filter, s.streams, count, string(r.action), found.Total, found.Entries)
	if err != nil || !act {
		return err
	}
	done, err := c.Deliveries().Bulk(ctx, r.action, r.filter.Values, r.args, false)
	for _, f := range done.Failures {
		s.streams.Notice("%s %s: %s", r.action, f.Entry, term.Printable(f.Error))
	}
	changed := term.Plural(done.Done, "delivery", "deliveries")
	return reportBulk(s.streams, string(r.action), changed, done.Done, len(done.Failures), err)
}
