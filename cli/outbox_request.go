package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/backend"
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
		Args: usageArgs(needs("an entry or ID")),
		RunE: a.runs(func(ctx context.Context, s *session, texts []string) error {
			if opts.filter.given() {
				return opts.applyFilter(ctx, s)
			}
			return opts.request(ctx, s, texts)
		}),
	}
	cmd.Flags().StringVar(&opts.args.Reason, "reason", "", "noted in the log of the daemon")
	opts.filter.flags(cmd)
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
	// filter selects deliveries instead of names.
	filter deliveryFilter
}

func (r *deliveryRequest) request(ctx context.Context, s *session, texts []string) error {
	r.args.By = userName()
	if _, err := r.args.JSON(); err != nil {
		return exit.Usagef("%w", err)
	}
	b, err := s.Open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	s.noDaemon(b, "a request waits on disk until one is")
	if b.Away != "" && r.wait.given {
		s.streams.Notice("nothing is delivered before a daemon starts: leave out --wait")
	}
	entries, err := b.Entries(ctx, texts)
	if err != nil {
		return err
	}
	return each(entries, func(entry string) error {
		answer, err := b.RequestDelivery(ctx, entry, &backend.DeliveryRequest{
			Action: r.action, Args: r.args, Wait: r.wait.atMost(),
		})
		if answer != nil {
			for _, message := range answer.Messages {
				s.streams.Notice("%s", message)
			}
		}
		if err != nil {
			return err
		}
		return printEntries(s.streams, answer.Entries)
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

// deliveryFilter selects deliveries by properties instead of by name.
type deliveryFilter struct {
	consent
	all    bool
	values map[string]*string
}

// deliveryFilterFlags are the flags of the filter, with their help texts.
var deliveryFilterFlags = [][2]string{
	{"status", "all with this status: pending or failed_manual"},
	{"kind", "all for targets of this kind: " + strings.Join(catalog.DeliveryKinds(), ", ")},
	{"target", "all whose target has this text in what it is called"},
	{"job", "all of this job: JOB or GROUP/JOB"},
	{"older-than", "all that have waited longer than this, such as 90s, 1h or 2d"},
}

// flags adds the filter flags to a command, which then accepts either a filter or names.
func (f *deliveryFilter) flags(cmd *cobra.Command) {
	f.values = make(map[string]*string)
	for _, flag := range deliveryFilterFlags {
		f.values[flag[0]] = cmd.Flags().String(flag[0], "", flag[1])
	}
	cmd.Flags().BoolVar(&f.all, "all", false, "all that there are")
	f.consentFlags(cmd, "with a filter: only list them")
	byName := cmd.Args
	cmd.Args = usageArgs(func(cmd *cobra.Command, args []string) error {
		switch chosen := f.all || len(f.filter()) > 0; {
		case !chosen && (f.dryRun || f.yes):
			return errors.New("--dry-run and --yes are for a filter, such as --status or --all")
		case !chosen:
			return byName(cmd, args)
		case len(args) > 0:
			return errors.New("name entries or a filter, not both")
		case cmd.Flags().Changed("wait"):
			return errors.New("--wait is for entries, not for a filter")
		}
		return nil
	})
}

// given reports whether the command line has a filter.
func (f *deliveryFilter) given() bool { return f.all || len(f.filter()) > 0 }

func (f *deliveryFilter) filter() url.Values {
	filter := url.Values{}
	for name, value := range f.values {
		if *value != "" {
			filter.Set(strings.ReplaceAll(name, "-", "_"), *value)
		}
	}
	return filter
}

// applyFilter applies an action to all deliveries that match: it prints their number, asks for
// confirmation, acts, and reports each failure.
func (r *deliveryRequest) applyFilter(ctx context.Context, s *session) error {
	filter := r.filter.filter()
	if r.filter.all && len(filter) == 0 && r.action == statefs.DropDelivery {
		filter.Set("status", "pending,failed_manual") // open deliveries; no filter drops nothing
	}
	r.args.By = userName()
	c, err := s.Connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	found, err := c.BulkDeliveries(ctx, r.action, filter, r.args, true)
	if err != nil {
		return err
	}
	count := term.Plural(found.Total, "delivery matches", "deliveries match")
	act, err := mayAct(&r.filter.consent, s.streams, count, string(r.action), found.Total, found.Entries)
	if err != nil || !act {
		return err
	}
	done, err := c.BulkDeliveries(ctx, r.action, filter, r.args, false)
	for _, f := range done.Failures {
		s.streams.Notice("%s %s: %s", r.action, f.Entry, term.Printable(f.Error))
	}
	s.streams.Notice("%s: %s, %s", r.action, term.Plural(done.Done, "delivery", "deliveries"),
		term.Plural(len(done.Failures), "failure", "failures"))
	return outcomeOfBulk(done.Done, len(done.Failures), err)
}
