package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
)

type historyOptions struct {
	history.Query
	status, result, since, until string
}

func (a *app) historyCommand() *cobra.Command {
	var opts historyOptions
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List the operations that have ended",
		Long: `history lists operations that have ended, the newest first. Without a daemon it reads the records in the
storage directory, the newest day first, until it has found enough.`,
		Example: "  jobdir history --status failed --since 7d",
		Args:    noArguments,
		RunE:    a.runs(opts.list),
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.status, "status", "completed,cancelled,failed", "only those "+operationFilters["status"])
	for name, into := range map[string]*string{
		"result": &opts.result, "job": &opts.Job, "group": &opts.Group, "key": &opts.Key, "tag": &opts.Tag,
	} {
		flags.StringVar(into, name, "", "only those "+operationFilters[name])
	}
	flags.StringVar(&opts.since, "since", "",
		"submitted since then: a time (2025-11-26 13:07:00, or with a zone 2025-11-26T13:07:00+01:00), a date, or 2h, 7d for so long ago")
	flags.StringVar(&opts.until, "until", "", "submitted before then")
	flags.StringVarP(&opts.Text, "text", "q", "", "only those "+operationFilters["text"])
	flags.IntVar(&opts.Limit, "limit", 50, "how many at most; 1 to 200")
	jsonFlag(cmd)
	return cmd
}

// historyRow is one line of history, the same with and without a daemon.
type historyRow struct {
	ID       statefs.ID     `json:"id"`
	Status   statefs.State  `json:"status"`
	Result   statefs.Result `json:"result"`
	Created  time.Time      `json:"created_at"`
	Finished *time.Time     `json:"finished_at"`
	Error    *statefs.Fault `json:"error,omitempty"`
}

func (o *historyOptions) list(ctx context.Context, s *session, _ []string) error {
	if err := o.parse(time.Now()); err != nil {
		return err
	}
	b, err := s.open(ctx, readFromDirectory)
	if err != nil {
		return err
	}
	page, err := b.Ended(ctx, &o.Query)
	if err != nil {
		return err
	}
	var all []historyRow
	var rows [][]string
	for i := range page.Operations {
		op := &page.Operations[i]
		all = append(all, historyRow{op.ID, op.State, op.Result, op.CreatedAt, op.FinishedAt, op.Error})
		text, at := "-", "-"
		if op.Error != nil {
			text = cmp.Or(term.Printable(op.Error.Message), "-")
		}
		if op.FinishedAt != nil {
			at = term.Time(*op.FinishedAt)
		}
		rows = append(rows, []string{op.ID.String(), string(op.State), cmp.Or(string(op.Result), "-"), at, text})
	}
	if page.Total > len(all) && !s.json {
		atLeast := "at least "
		if page.TotalExact {
			atLeast = ""
		}
		s.streams.Notice("%d of %s%d are shown; --limit shows more, and --since, --status and others narrow them down",
			len(all), atLeast, page.Total)
	}
	return printList(s, "operations", all, []string{"ID", "STATUS", "RESULT", "FINISHED", "ERROR"}, rows)
}

var results = []statefs.Result{statefs.Success, statefs.Partial, statefs.Failure, statefs.CancelledResult}

// parse completes the query from the flags that are not part of it.
func (o *historyOptions) parse(now time.Time) error {
	if o.Limit < 1 || o.Limit > 200 {
		return exit.Usagef("flag --limit: %d is not between 1 and 200", o.Limit)
	}
	for word := range strings.SplitSeq(o.status, ",") {
		state := statefs.State(strings.TrimSpace(word))
		if !state.Terminal() {
			return exit.Usagef("flag --status: %q is not one of completed, cancelled, failed; 'jobdir ls' lists what lives",
				word)
		}
		o.Statuses = append(o.Statuses, state)
	}
	if o.result != "" {
		for word := range strings.SplitSeq(o.result, ",") {
			result := statefs.Result(strings.TrimSpace(word))
			if !slices.Contains(results, result) {
				return exit.Usagef("flag --result: %q is not one of success, partial, failure, cancelled", word)
			}
			o.Results = append(o.Results, result)
		}
	}
	for _, bound := range []struct {
		name, text string
		into       *time.Time
	}{{"since", o.since, &o.Since}, {"until", o.until, &o.Until}} {
		if bound.text == "" {
			continue
		}
		at, ok := history.ParseTime(bound.text, now)
		if !ok {
			return exit.Usagef("flag --%s: %q is not a time (2025-11-26T13:07:00+01:00, 2025-11-26 13:07:00), a date (2025-11-26) or a duration (2h, 7d)", bound.name, bound.text)
		}
		*bound.into = at
	}
	return nil
}
