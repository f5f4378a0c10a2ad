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
	status, result, job, group, key, tag, since, until, text string
	limit                                                    int
	json                                                     bool
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
	flags.StringVar(&opts.status, "status", "completed,cancelled,failed",
		"only those with this status; several are separated by commas")
	flags.StringVar(&opts.result, "result", "", "only those with this result: success, partial, failure or cancelled")
	flags.StringVar(&opts.job, "job", "", "only those of this job: JOB or GROUP/JOB")
	flags.StringVar(&opts.group, "group", "", "only those of this group")
	flags.StringVar(&opts.key, "key", "", "only those with this key")
	flags.StringVar(&opts.tag, "tag", "", "only those with this tag")
	flags.StringVar(&opts.since, "since", "",
		"submitted since then: a time (2025-11-26 13:07:00, or with a zone 2025-11-26T13:07:00+01:00), a date, or 2h, 7d for so long ago")
	flags.StringVar(&opts.until, "until", "", "submitted before then")
	flags.StringVarP(&opts.text, "text", "q", "", "only those with this text in the ID, the parameters or the error")
	flags.IntVar(&opts.limit, "limit", 50, "how many at most; 1 to 200")
	jsonFlag(cmd, &opts.json)
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
	q, err := o.query(time.Now())
	if err != nil {
		return err
	}
	b, err := s.Open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	s.noDaemon(b, readFromDirectory)
	page, err := b.Ended(ctx, q)
	if err != nil {
		return err
	}
	all := []historyRow{}
	for i := range page.Operations {
		op := &page.Operations[i]
		all = append(all, historyRow{op.ID, op.State, op.Result, op.CreatedAt, op.FinishedAt, op.Error})
	}
	if o.json {
		return s.streams.JSON(map[string]any{"operations": all, "count": len(all)})
	}
	var rows [][]string
	for i := range all {
		e := &all[i]
		text := ""
		if e.Error != nil {
			text = term.Printable(e.Error.Message)
		}
		at := "-"
		if e.Finished != nil {
			at = e.Finished.Local().Format(time.DateTime)
		}
		rows = append(rows, []string{e.ID.String(), string(e.Status), cmp.Or(string(e.Result), "-"), at, cmp.Or(text, "-")})
	}
	if page.Total > len(all) {
		atLeast := "at least "
		if page.TotalExact {
			atLeast = ""
		}
		s.streams.Notice("%d of %s%d are shown; --limit shows more, and --since, --status and others narrow them down",
			len(all), atLeast, page.Total)
	}
	return s.streams.Table([]string{"ID", "STATUS", "RESULT", "FINISHED", "ERROR"}, rows)
}

var results = []statefs.Result{statefs.Success, statefs.Partial, statefs.Failure, statefs.CancelledResult}

// query builds the query from the flags.
func (o *historyOptions) query(now time.Time) (*history.Query, error) {
	if o.limit < 1 || o.limit > 200 {
		return nil, exit.Usagef("flag --limit: %d is not between 1 and 200", o.limit)
	}
	q := &history.Query{Job: o.job, Group: o.group, Key: o.key, Tag: o.tag, Text: o.text, Limit: o.limit}
	for word := range strings.SplitSeq(o.status, ",") {
		state := statefs.State(strings.TrimSpace(word))
		if !state.Terminal() {
			return nil, exit.Usagef("flag --status: %q is not one of completed, cancelled, failed; 'jobdir ls' lists what lives",
				word)
		}
		q.Statuses = append(q.Statuses, state)
	}
	if o.result != "" {
		for word := range strings.SplitSeq(o.result, ",") {
			result := statefs.Result(strings.TrimSpace(word))
			if !slices.Contains(results, result) {
				return nil, exit.Usagef("flag --result: %q is not one of success, partial, failure, cancelled", word)
			}
			q.Results = append(q.Results, result)
		}
	}
	for _, bound := range []struct {
		name, text string
		into       *time.Time
	}{{"since", o.since, &q.Since}, {"until", o.until, &q.Until}} {
		if bound.text == "" {
			continue
		}
		at, ok := history.ParseTime(bound.text, now)
		if !ok {
			return nil,
				exit.Usagef("flag --%s: %q is not a time (2025-11-26T13:07:00+01:00, 2025-11-26 13:07:00), a date (2025-11-26) or a duration (2h, 7d)", bound.name, bound.text)
		}
		*bound.into = at
	}
	return q, nil
}
