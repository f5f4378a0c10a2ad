package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
)

// bulkOptions select operations by a filter instead of by ID.
type bulkOptions struct {
	filter url.Values
	values map[string]*string
	consent
}

// consent is how a command that acts on all that a filter matches gets the consent of a person.
type consent struct{ dryRun, yes bool }

// consentFlags adds the flags of the consent to a command.
func (c *consent) consentFlags(cmd *cobra.Command, dryRun string) {
	cmd.Flags().BoolVarP(&c.dryRun, "dry-run", "n", false, dryRun)
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "with a filter: do it without a question")
}

// mayAct prints how many match and asks a person, unless the command line answers, and reports whether to act on them.
func mayAct[T any](c *consent, out term.Streams, count, action string, total int, names []T) (act bool, err error) {
	switch {
	case total == 0 || c.dryRun:
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
	case c.yes:
		out.Notice("%s", count)
	case !out.Interactive():
		return false, exit.Usagef("%s: repeat with --yes, or list them with --dry-run", count)
	case !out.Confirm(fmt.Sprintf("%s. %s? [y/N] ", count, strings.ToUpper(action[:1])+action[1:])):
		return false, exit.With(exit.Temporary)
	}
	return true, nil
}

// outcomeOfBulk returns the exit code: 1 if all failed, 2 if some did.
func outcomeOfBulk(done, failures int, err error) error {
	switch {
	case err != nil || failures == 0:
		return err
	case done > 0:
		return exit.With(exit.Partial)
	}
	return exit.With(exit.Failure)
}

// bulkFlags are the flags of a filter, with their help texts.
var bulkFlags = [][2]string{
	{"status", "all with this status; several are separated by commas"},
	{"result", "all with this result: success, partial, failure or cancelled"},
	{"job", "all of this job: JOB or GROUP/JOB"},
	{"group", "all of this group"},
	{"lane", "all of this lane"},
	{"key", "all with this key"},
	{"tag", "all with this tag"},
	{"since", "all submitted since then: a time, a date, or 2h, 7d for so long ago"},
	{"until", "all submitted before then"},
	{"text", "all with this text in the ID, the parameters or the error"},
}

// byFilter adds the filter flags to a command that takes IDs. The command then accepts either.
func (o *bulkOptions) byFilter(cmd *cobra.Command) {
	o.values = make(map[string]*string)
	flags := cmd.Flags()
	for _, f := range bulkFlags {
		o.values[f[0]] = flags.String(f[0], "", f[1])
	}
	o.consentFlags(cmd, "with a filter: only print how many match")
	byIDs := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		o.filter = url.Values{}
		for _, f := range bulkFlags {
			if !flags.Changed(f[0]) {
				continue
			}
			if *o.values[f[0]] == "" {
				return fmt.Errorf("flag --%s is empty", f[0])
			}
			name := f[0]
			if name == "text" {
				name = "q"
			}
			o.filter.Set(name, *o.values[f[0]])
		}
		switch {
		case len(o.filter) == 0 && (o.dryRun || o.yes):
			return errors.New("--dry-run and --yes are for a filter, such as --status or --job")
		case len(o.filter) == 0 && len(args) == 0:
			return fmt.Errorf("%s: an ID is missing, or a filter such as --status", cmd.Name())
		case len(o.filter) == 0:
			return byIDs(cmd, args)
		case len(args) > 0:
			return errors.New("name IDs or a filter, not both")
		}
		for _, name := range []string{"wait", "failed-items", "force"} {
			if flags.Changed(name) {
				return fmt.Errorf("--%s is for IDs, not for a filter", name)
			}
		}
		return nil
	}
}

// given reports whether the command line has a filter.
func (o *bulkOptions) given() bool { return len(o.filter) > 0 }

// apply applies an action to all operations that match: it prints their number, asks for confirmation, acts,
// and reports each failure.
func (o *bulkOptions) apply(ctx context.Context, s *session, action string, asJSON bool) error {
	c, err := s.Connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	found, err := c.BulkDryRun(ctx, action, o.filter)
	if err != nil {
		return err
	}
	count := term.Plural(found.Total, "operation matches", "operations match")
	if !found.TotalExact {
		count = "at least " + count
	}
	if asJSON && (found.Total == 0 || o.dryRun) {
		return s.streams.JSON(found)
	}
	if act, err := mayAct(&o.consent, s.streams, count, action, found.Total, found.Operations); err != nil || !act {
		return err
	}
	if !o.filter.Has("until") {
		o.filter.Set("until", found.At.Format(time.RFC3339Nano)) // excludes operations submitted after the count
	}
	all, err := c.Bulk(ctx, action, o.filter, func(some *client.Bulk) {
		for _, f := range some.Failures {
			s.streams.Notice("%s %s: %s", action, f.ID, term.Printable(f.Error))
		}
	})
	if asJSON {
		if failed := s.streams.JSON(all); failed != nil {
			return failed
		}
	}
	s.streams.Notice("%s: %s, %s", action, term.Plural(all.Done, "operation", "operations"),
		term.Plural(len(all.Failures), "failure", "failures"))
	return outcomeOfBulk(all.Done, len(all.Failures), err)
}
