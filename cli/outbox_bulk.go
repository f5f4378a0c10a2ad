package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// deliveryFilter selects deliveries by properties instead of by name.
type deliveryFilter struct {
	all, dryRun, yes bool
	values           map[string]*string
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
	cmd.Flags().BoolVarP(&f.dryRun, "dry-run", "n", false, "with a filter: only list them")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "with a filter: do it without a question")
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

// requestDeliveries applies an action to all deliveries that match: it prints their number, asks for
// confirmation, acts, and reports each failure.
func (a *app) requestDeliveries(ctx context.Context, conf *config.Loaded, opts deliveryRequest) error {
	filter := opts.filter.filter()
	if opts.filter.all && len(filter) == 0 && opts.action == statefs.DropDelivery {
		filter.Set("status", "pending,failed_manual") // open deliveries; no filter drops nothing
	}
	opts.args.By = userName()
	c, err := a.connect(ctx, conf)
	if err != nil {
		return err
	}
	defer c.Close()
	found, err := c.BulkDeliveries(ctx, opts.action, filter, opts.args, true)
	if err != nil {
		return err
	}
	count := term.Plural(found.Total, "delivery matches", "deliveries match")
	switch {
	case found.Total == 0 || opts.filter.dryRun:
		for _, entry := range found.Entries {
			if err := a.streams.Line("%s", entry); err != nil {
				return err
			}
		}
		if more := found.Total - len(found.Entries); more > 0 {
			a.streams.Notice("and %d more", more)
		}
		a.streams.Notice("%s", count)
		return nil
	case opts.filter.yes:
		a.streams.Notice("%s", count)
	case !a.streams.Interactive():
		return exit.Usagef("%s: repeat with --yes, or list them with --dry-run", count)
	case !a.streams.Confirm(fmt.Sprintf("%s. %s? [y/N] ", count,
		strings.ToUpper(string(opts.action[:1]))+string(opts.action[1:]))):
		return exit.With(exit.Temporary)
	}
	done, err := c.BulkDeliveries(ctx, opts.action, filter, opts.args, false)
	for _, f := range done.Failures {
		a.streams.Notice("%s %s: %s", opts.action, f.Entry, term.Printable(f.Error))
	}
	a.streams.Notice("%s: %s, %s", opts.action, term.Plural(done.Done, "delivery", "deliveries"),
		term.Plural(len(done.Failures), "failure", "failures"))
	return outcomeOfBulk(done, err)
}

// outcomeOfBulk returns the exit code: 1 if all failed, 2 if some did.
func outcomeOfBulk(done *client.BulkDeliveries, err error) error {
	switch {
	case err != nil || len(done.Failures) == 0:
		return err
	case done.Done > 0:
		return exit.With(exit.Partial)
	}
	return exit.With(exit.Failure)
}
