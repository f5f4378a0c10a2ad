package cli

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
)

// filter selects what a command acts on by its properties instead of by name.
type filter struct {
	url.Values  // by the names of the endpoint; empty without a filter
	dryRun, yes bool
}

// operationFilters are the flags that select operations, with their help after "all" or "only those".
var operationFilters = map[string]string{
	"status": "with this status; several are separated by commas",
	"result": "with this result: success, partial, failure or cancelled",
	"job":    "of this job: JOB or GROUP/JOB",
	"group":  "of this group",
	"lane":   "of this lane",
	"key":    "with this key",
	"tag":    "with this tag",
	"since":  "submitted since then: a time, a date, or 2h, 7d for so long ago",
	"until":  "submitted before then",
	"text":   "with this text in the ID, the parameters or the error",
}

// deliveryFilters are the flags that select deliveries.
var deliveryFilters = map[string]string{
	"status":     "with this status: pending or failed_manual",
	"kind":       "for targets of this kind: " + strings.Join(catalog.DeliveryKinds(), ", "),
	"target":     "whose target has this text in what it is called",
	"job":        operationFilters["job"],
	"older-than": "that have waited longer than this, such as 90s, 1h or 2d",
}

// addFlags adds the flags of a filter to a command that takes names, which messages call so. The command then accepts
// either. such is an example of a flag, and counts what --dry-run does.
func (f *filter) addFlags(cmd *cobra.Command, filters map[string]string, names, such, counts string) {
	flags := cmd.Flags()
	for name, help := range filters {
		flags.String(name, "", "all "+help)
	}
	flags.BoolVarP(&f.dryRun, "dry-run", "n", false, "with a filter: only "+counts)
	flags.BoolVarP(&f.yes, "yes", "y", false, "with a filter: do it without a question")
	byNames := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		f.Values = url.Values{}
		for name := range filters {
			value, _ := flags.GetString(name) // it is such a flag
			switch {
			case !flags.Changed(name):
				continue
			case value == "":
				return fmt.Errorf("flag --%s is empty", name)
			case name == "text":
				name = "q"
			}
			f.Set(strings.ReplaceAll(name, "-", "_"), value)
		}
		if all, err := flags.GetBool("all"); err == nil && all && !f.given() {
			f.Set("status", "pending,failed_manual") // every open delivery
		}
		switch {
		case !f.given() && (f.dryRun || f.yes):
			return fmt.Errorf("--dry-run and --yes are for a filter, such as --status or --%s", such)
		case !f.given():
			return byNames(cmd, args)
		case len(args) > 0:
			return fmt.Errorf("name %s or a filter, not both", names)
		}
		for _, name := range []string{"wait", "failed-items", "force"} {
			if flags.Changed(name) {
				return fmt.Errorf("--%s is for %s, not for a filter", name, names)
			}
		}
		return nil
	}
}

// given reports whether the command line has a filter.
func (f *filter) given() bool { return len(f.Values) > 0 }

// mayAct prints how many match and asks a person, unless the command line answers, and reports whether to act on them.
func mayAct[T any](f *filter, out term.Streams, count, action string, total int, names []T) (act bool, err error) {
	switch {
	case total == 0 || f.dryRun:
		for _, name := range names {
			if err := out.Line("%s", name); err != nil {
				return false, err
			}
		}
		if more := total - len(names); more > 0 {
			out.Notice("and %d more", more)
		}
		out.Notice("%s", count)
		return false, nil
	case f.yes:
		out.Notice("%s", count)
	case !out.Interactive():
		return false, exit.Usagef("%s: repeat with --yes, or list them with --dry-run", count)
	case !out.Confirm(fmt.Sprintf("%s. %s? [y/N] ", count, strings.ToUpper(action[:1])+action[1:])):
		return false, exit.With(exit.Temporary)
	}
	return true, nil
}

// reportBulk prints what was done and how many failed, and returns the exit code: 1 if all failed, 2 if some did.
func reportBulk(out term.Streams, action, done string, did, failures int, err error) error {
	out.Notice("%s: %s, %s", action, done, term.Plural(failures, "failure", "failures"))
	switch {
	case err != nil || failures == 0:
		return err
	case did > 0:
		return exit.With(exit.Partial)
	}
	return exit.With(exit.Failure)
}

// apply applies an action to all operations that match: it prints their number, asks for confirmation, acts,
// and reports each failure.
func (f *filter) apply(ctx context.Context, s *session, action string) error {
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	found, err := c.BulkDryRun(ctx, action, f.Values)
	if err != nil {
		return err
	}
	count := term.Plural(found.Total, "operation matches", "operations match")
	if !found.TotalExact {
		count = "at least " + count
	}
	if s.json && (found.Total == 0 || f.dryRun) {
		return s.streams.JSON(found)
	}
	if act, err := mayAct(f, s.streams, count, action, found.Total, found.Operations); err != nil || !act {
		return err
	}
	if !f.Has("until") {
		f.Set("until", found.At.Format(time.RFC3339Nano)) // excludes operations submitted after the count
	}
	all, err := c.Bulk(ctx, action, f.Values, func(some *client.Bulk) {
		for _, failed := range some.Failures {
			s.streams.Notice("%s %s: %s", action, failed.ID, term.Printable(failed.Error))
		}
	})
	if s.json {
		if failed := s.streams.JSON(all); failed != nil {
			return failed
		}
	}
	done := term.Plural(all.Done, "operation", "operations")
	return reportBulk(s.streams, action, done, all.Done, len(all.Failures), err)
}
