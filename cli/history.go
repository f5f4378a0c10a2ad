package cli

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.history(cmd.Context(), conf, opts)
		},
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

func (a *app) history(ctx context.Context, conf *config.Loaded, opts historyOptions) error {
	q, filter, err := opts.query(time.Now())
	if err != nil {
		return err
	}
	all, total, atLeast := []historyRow{}, 0, ""
	err = a.reach(ctx, conf, func(c *client.Client) error {
		page, err := c.List(ctx, filter)
		if err != nil {
			return err
		}
		if total = page.Total; !page.TotalExact {
			atLeast = "at least "
		}
		for i := range page.Operations {
			op := &page.Operations[i]
			all = append(all, historyRow{op.ID, op.State, op.Result, op.CreatedAt, op.FinishedAt, op.Error})
		}
		return nil
	}, func(tree *statefs.Tree) error {
		a.streams.Notice("no daemon is running on %s: the output is read from the directory", tree.Dir())
		all, err = historyOf(ctx, tree, q)
		return err
	})
	if err != nil {
		return err
	}
	if opts.json {
		return a.streams.JSON(map[string]any{"operations": all, "count": len(all)})
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
	if total > len(all) {
		a.streams.Notice("%d of %s%d are shown; --limit shows more, and --since, --status and others narrow them down",
			len(all), atLeast, total)
	}
	return a.streams.Table([]string{"ID", "STATUS", "RESULT", "FINISHED", "ERROR"}, rows)
}

var results = []statefs.Result{statefs.Success, statefs.Partial, statefs.Failure, statefs.CancelledResult}

// query builds the query from the flags, for the directory and for the daemon.
func (o *historyOptions) query(now time.Time) (*history.Query, url.Values, error) {
	if o.limit < 1 || o.limit > 200 {
		return nil, nil, exit.Usagef("flag --limit: %d is not between 1 and 200", o.limit)
	}
	q := &history.Query{Job: o.job, Group: o.group, Key: o.key, Tag: o.tag, Text: o.text, Limit: o.limit}
	filter := url.Values{"limit": {strconv.Itoa(o.limit)}}
	for name, value := range map[string]string{
		"status": o.status, "result": o.result, "job": o.job, "group": o.group, "key": o.key, "tag": o.tag, "q": o.text,
	} {
		if value != "" {
			filter.Set(name, value)
		}
	}
	for word := range strings.SplitSeq(o.status, ",") {
		state := statefs.State(strings.TrimSpace(word))
		if !state.Terminal() {
			return nil, nil, exit.Usagef("flag --status: %q is not one of completed, cancelled, failed; 'jobdir ls' lists what lives",
				word)
		}
		q.Statuses = append(q.Statuses, state)
	}
	if o.result != "" {
		for word := range strings.SplitSeq(o.result, ",") {
			result := statefs.Result(strings.TrimSpace(word))
			if !slices.Contains(results, result) {
				return nil, nil, exit.Usagef("flag --result: %q is not one of success, partial, failure, cancelled", word)
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
			return nil, nil,
				exit.Usagef("flag --%s: %q is not a time (2025-11-26T13:07:00+01:00, 2025-11-26 13:07:00), a date (2025-11-26) or a duration (2h, 7d)", bound.name, bound.text)
		}
		*bound.into = at
		filter.Set(bound.name, at.Format(time.RFC3339Nano))
	}
	return q, filter, nil
}

// historyOf reads records, newest first, until it has found enough matches.
func historyOf(ctx context.Context, tree *statefs.Tree, q *history.Query) ([]historyRow, error) {
	all := []historyRow{}
	days, err := tree.Days()
	if err != nil {
		return nil, err
	}
	for _, day := range days {
		files, err := tree.ListDay(day)
		if err != nil {
			return nil, err
		}
		for _, id := range files.Records {
			if len(all) == q.Limit || ctx.Err() != nil {
				return all, ctx.Err()
			}
			rec, err := tree.ReadRecord(id)
			if err != nil || !rec.Status.Terminal() {
				continue
			}
			if row := history.RowOf(rec); q.Matches(row.Pack()) {
				all = append(all, historyRow{rec.ID, rec.Status, rec.Result, rec.CreatedAt, rec.FinishedAt, rec.Error})
			}
		}
	}
	return all, nil
}
