package cli

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

type outboxOptions struct {
	status, kind           []string
	job, target, olderThan string
	limit                  int
	watch, json            bool
}

func (a *app) outboxCommand() *cobra.Command {
	var opts outboxOptions
	cmd := &cobra.Command{
		Use:   "outbox",
		Short: "List pending deliveries, retry or drop them",
		Long: `outbox lists the deliveries that are not done yet, the oldest first: how often each was tried, when it is
tried next, and the last error. With --watch it then prints a line for each change. Without a daemon it reads the
storage directory, which does not contain which targets are down.`,
		Example: "  jobdir outbox --status failed_manual\n  jobdir outbox retry r42\n  jobdir outbox drop r42.1-webhook --reason \"the customer is gone\"",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.streams.Following(cmd.Context(), func(ctx context.Context) error { return a.outbox(ctx, conf, &opts) })
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&opts.status, "status", nil, "only those with this status: pending or failed_manual")
	flags.StringArrayVar(&opts.kind, "kind", nil,
		"only those for targets of this kind: "+strings.Join(catalog.DeliveryKinds(), ", "))
	flags.StringVar(&opts.target, "target", "",
		"only those whose target has this text in what it is called; needs a daemon")
	flags.StringVar(&opts.job, "job", "", "only those of this job: JOB or GROUP/JOB")
	flags.StringVar(&opts.olderThan, "older-than", "",
		"only those that have waited longer than this, such as 90s, 1h or 2d")
	flags.IntVar(&opts.limit, "limit", 1000, "at most so many; 0: all")
	flags.BoolVarP(&opts.watch, "watch", "w", false, "then print a line for each change")
	jsonFlag(cmd, &opts.json)
	cmd.AddCommand(
		a.deliveryActionCommand(statefs.RetryDelivery,
			"Try deliveries now, also those that wait for a person or whose target is down"),
		a.deliveryActionCommand(statefs.DropDelivery, "Drop deliveries; their status in the record is dropped"),
	)
	return cmd
}

func (o *outboxOptions) check() (older time.Duration, err error) {
	for _, status := range o.status {
		if status != string(statefs.DeliveryPending) && status != string(statefs.DeliveryManual) {
			return 0, exit.Usagef("flag --status: %q is neither pending nor failed_manual", status)
		}
	}
	for _, kind := range o.kind {
		if !slices.Contains(catalog.DeliveryKinds(), kind) {
			return 0, exit.Usagef("flag --kind: %q is none of %s", kind, strings.Join(catalog.DeliveryKinds(), ", "))
		}
	}
	if o.limit < 0 {
		return 0, exit.Usagef("flag --limit: %d is below zero", o.limit)
	}
	if o.olderThan != "" {
		age, ok := param.ParseDuration(o.olderThan)
		if !ok || age < 0 {
			return 0, exit.Usagef("flag --older-than: %q is not a time such as 90s, 1h or 2d", o.olderThan)
		}
		older = age
	}
	return older, nil
}

func (a *app) outbox(ctx context.Context, conf *config.Loaded, opts *outboxOptions) error {
	older, err := opts.check()
	if err != nil {
		return err
	}
	return a.reach(ctx, conf, func(c *client.Client) error {
		all, err := readOutbox(ctx, c, opts)
		if err != nil {
			return err
		}
		if err := a.showOutbox(all, opts.json); err != nil || !opts.watch {
			return err
		}
		return a.events(ctx, conf, eventsOptions{kind: []string{"delivery", "target"}, after: -1, json: opts.json})
	}, func(tree *statefs.Tree) error {
		if opts.target != "" {
			return exit.Usagef("flag --target: no daemon is running on %s, and the directory does not contain the names of targets",
				tree.Dir())
		}
		a.streams.Notice("no daemon is running on %s: the output is read from the directory", tree.Dir())
		all, err := listOutbox(tree, opts, older)
		if err != nil {
			return err
		}
		if opts.watch {
			a.streams.Notice("nothing is delivered before a daemon starts: leave out --watch")
		}
		return a.showOutbox(all, opts.json)
	})
}

// readOutbox reads as many pages as requested.
func readOutbox(ctx context.Context, c *client.Client, opts *outboxOptions) (*client.Outbox, error) {
	filter := url.Values{"status": opts.status, "kind": opts.kind, "limit": {"200"}}
	for name, value := range map[string]string{"job": opts.job, "target": opts.target, "older_than": opts.olderThan} {
		if value != "" {
			filter.Set(name, value)
		}
	}
	var all *client.Outbox
	for {
		if left := opts.limit; left > 0 {
			if all != nil {
				left -= len(all.Entries)
			}
			filter.Set("limit", strconv.Itoa(min(left, 200)))
		}
		page, err := c.Outbox(ctx, filter)
		if err != nil {
			return nil, err
		}
		if all != nil {
			page.Entries = append(all.Entries, page.Entries...)
		}
		all = page
		if page.Next == nil || opts.limit > 0 && len(page.Entries) >= opts.limit {
			return all, nil
		}
		filter.Set("next", *page.Next)
	}
}

// listOutbox reads the outbox of a storage without a daemon.
func listOutbox(tree *statefs.Tree, opts *outboxOptions, older time.Duration) (*client.Outbox, error) {
	files, err := tree.Outbox()
	if err != nil {
		return nil, err
	}
	all := &client.Outbox{Entries: []statefs.OutboxItem{}}
	all.Pending, all.FailedManual, all.Targets, all.Kinds = len(files.Pending), len(files.Manual),
		[]statefs.OutboxTarget{}, map[string]statefs.DeliveryCounts{}
	before := time.Now().Add(-older)
	for _, name := range slices.Concat(files.Pending, files.Manual) {
		item, err := tree.ShowEntry(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if item.Status == statefs.DeliveryPending && (all.OldestAt == nil || item.CreatedAt.Before(*all.OldestAt)) {
			all.OldestAt = &item.CreatedAt
		}
		if len(opts.status) > 0 && !slices.Contains(opts.status, string(item.Status)) || len(opts.kind) > 0 &&
			!slices.Contains(opts.kind, item.Kind) ||
			opts.job != "" && opts.job != item.Job && opts.job != item.Group+"/"+item.Job || opts.olderThan != "" &&
			!item.CreatedAt.Before(before) {
			continue
		}
		all.Entries = append(all.Entries, item)
	}
	if all.OldestAt != nil {
		all.OldestSeconds = int64(max(time.Since(*all.OldestAt), 0) / time.Second)
	}
	slices.SortFunc(all.Entries, func(a, b statefs.OutboxItem) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.Entry, b.Entry))
	})
	all.Total = len(all.Entries)
	if opts.limit > 0 && all.Total > opts.limit {
		all.Entries = all.Entries[:opts.limit]
	}
	return all, nil
}

func (a *app) showOutbox(all *client.Outbox, asJSON bool) error {
	if asJSON {
		return a.streams.JSON(map[string]any{
			"entries": all.Entries, "count": len(all.Entries), "total": all.Total, "pending": all.Pending,
			"failed_manual": all.FailedManual,
			"oldest_at":     all.OldestAt, "oldest_seconds": all.OldestSeconds, "targets": all.Targets,
		})
	}
	var rows [][]string
	for i := range all.Entries {
		e := &all.Entries[i]
		why := cmp.Or(e.LastError, e.Error)
		if e.Status == statefs.DeliveryManual {
			why = cmp.Or(e.Error, e.LastError)
		}
		rows = append(rows, []string{
			e.Entry, string(e.Status), e.CreatedAt.Local().Format("2006-01-02 15:04:05"),
			strconv.Itoa(e.Attempts), nextTry(e), cmp.Or(term.Printable(why), "-"),
		})
	}
	if err := a.streams.Table([]string{"ENTRY", "STATUS", "SINCE", "TRIES", "NEXT", "ERROR"}, rows); err != nil {
		return err
	}
	more := all.Total - len(all.Entries)
	if more > 0 {
		a.streams.Notice("and %d more: --limit 0 lists all", more)
	}
	for i := range all.Targets {
		t := &all.Targets[i]
		waits := more > 0 || slices.ContainsFunc(all.Entries, func(e statefs.OutboxItem) bool { return e.At == t.Name })
		if t.Down && waits {
			a.streams.Notice("%s is down since %s: %s", term.Printable(t.Name),
				t.Since.Local().Format("2006-01-02 15:04:05"), term.Printable(t.Error))
		}
	}
	return nil
}

// nextTry formats when an entry is tried next.
func nextTry(e *statefs.OutboxItem) string {
	switch {
	case e.Status == statefs.DeliveryManual:
		return "when a person acts"
	case e.NextTryAt != nil:
		return e.NextTryAt.Local().Format("15:04:05")
	}
	return "-"
}
