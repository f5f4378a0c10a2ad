package cli

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/cli/backend"
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
		RunE: a.follows(opts.list),
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&opts.status, "status", nil, "only those with this status: pending or failed_manual")
	flags.StringArrayVar(&opts.kind, "kind", nil,
		"only those for targets of this kind: "+strings.Join(catalog.DeliveryKinds(), ", "))
	flags.StringVar(&opts.target, "target", "",
		"only those whose target has this text in what it is called; needs a daemon")
	flags.StringVar(&opts.job, "job", "", "only those of this job: JOB or GROUP/JOB")
	flags.StringVar(&opts.olderThan, "older-than", "",
		"only deliveries that have waited longer than this, such as 90s, 1h or 2d")
	flags.IntVar(&opts.limit, "limit", 1000, "at most so many; 0: all")
	flags.BoolVarP(&opts.watch, "watch", "w", false, "then print a line for each change")
	jsonFlag(cmd, &opts.json)
	cmd.AddCommand(
		a.deliveryActionCommand(statefs.RetryDelivery,
			"Try deliveries now, also if they wait for a person or their target is down"),
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

func (o *outboxOptions) list(ctx context.Context, s *session, _ []string) error {
	older, err := o.check()
	if err != nil {
		return err
	}
	b, err := s.Open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	if o.target == "" { // without a daemon it is refused
		s.noDaemon(b, readFromDirectory)
	}
	all, err := b.Outbox(ctx, &backend.OutboxQuery{
		Status: o.status, Kind: o.kind, Job: o.job, Target: o.target, OlderThan: o.olderThan, Older: older, Limit: o.limit,
	})
	if err != nil {
		return err
	}
	if b.Away != "" && o.watch {
		s.streams.Notice("nothing is delivered before a daemon starts: leave out --watch")
	}
	if err := showOutbox(s.streams, all, o.json); err != nil || !o.watch || b.Away != "" {
		return err
	}
	changes := eventsOptions{kind: []string{"delivery", "target"}, after: -1, json: o.json}
	return changes.write(ctx, s, nil)
}

func showOutbox(out term.Streams, all *client.Outbox, asJSON bool) error {
	if asJSON {
		return out.JSON(map[string]any{
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
	if err := out.Table([]string{"ENTRY", "STATUS", "SINCE", "TRIES", "NEXT", "ERROR"}, rows); err != nil {
		return err
	}
	more := all.Total - len(all.Entries)
	if more > 0 {
		out.Notice("and %d more: --limit 0 lists all", more)
	}
	for i := range all.Targets {
		t := &all.Targets[i]
		waits := more > 0 || slices.ContainsFunc(all.Entries, func(e statefs.OutboxItem) bool { return e.At == t.Name })
		if t.Down && waits {
			out.Notice("%s is down since %s: %s", term.Printable(t.Name),
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
