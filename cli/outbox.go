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
	backend.OutboxQuery
	watch bool
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
		Args:    onlyCommands,
		RunE:    a.follows(opts.list),
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&opts.Status, "status", nil, "only those "+deliveryFilters["status"])
	flags.StringArrayVar(&opts.Kind, "kind", nil, "only those "+deliveryFilters["kind"])
	flags.StringVar(&opts.Target, "target", "", "only those "+deliveryFilters["target"]+"; needs a daemon")
	flags.StringVar(&opts.Job, "job", "", "only those "+deliveryFilters["job"])
	flags.StringVar(&opts.OlderThan, "older-than", "", "only deliveries "+deliveryFilters["older-than"])
	flags.IntVar(&opts.Limit, "limit", 1000, "at most so many; 0: all")
	flags.BoolVarP(&opts.watch, "watch", "w", false, "then print a line for each change")
	jsonFlag(cmd)
	cmd.AddCommand(
		a.deliveryActionCommand(statefs.RetryDelivery,
			"Try deliveries now, also if they wait for a person or their target is down"),
		a.deliveryActionCommand(statefs.DropDelivery, "Drop deliveries; their status in the record is dropped"),
	)
	return cmd
}

func (o *outboxOptions) check() error {
	for _, status := range o.Status {
		if status != string(statefs.DeliveryPending) && status != string(statefs.DeliveryManual) {
			return exit.Usagef("flag --status: %q is neither pending nor failed_manual", status)
		}
	}
	for _, kind := range o.Kind {
		if !slices.Contains(catalog.DeliveryKinds(), kind) {
			return exit.Usagef("flag --kind: %q is none of %s", kind, strings.Join(catalog.DeliveryKinds(), ", "))
		}
	}
	if o.Limit < 0 {
		return exit.Usagef("flag --limit: %d is below zero", o.Limit)
	}
	if o.OlderThan != "" {
		age, ok := param.ParseDuration(o.OlderThan)
		if !ok {
			return exit.Usagef("flag --older-than: %q is not a time such as 90s, 1h or 2d", o.OlderThan)
		}
		o.Older = age
	}
	return nil
}

func (o *outboxOptions) list(ctx context.Context, s *session, _ []string) error {
	if err := o.check(); err != nil {
		return err
	}
	away := readFromDirectory
	if o.Target != "" { // without a daemon it is refused
		away = ""
	}
	b, err := s.open(ctx, away)
	if err != nil {
		return err
	}
	all, err := b.Outbox(ctx, &o.OutboxQuery)
	if err != nil {
		return err
	}
	if b.Away != "" && o.watch {
		s.streams.Notice("nothing is delivered before a daemon starts: leave out --watch")
	}
	if err := showOutbox(s, all); err != nil || !o.watch || b.Away != "" {
		return err
	}
	changes := eventsOptions{filter: map[string]*[]string{"type": {"delivery", "target"}}, after: -1}
	return changes.write(ctx, s, nil)
}

func showOutbox(s *session, all *client.Outbox) error {
	out := s.streams
	if s.json {
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
			e.Entry, string(e.Status), term.Time(e.CreatedAt),
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
			out.Notice("%s is down since %s: %s", term.Printable(t.Name), term.Time(*t.Since), term.Printable(t.Error))
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
		return e.NextTryAt.Local().Format(time.TimeOnly)
	}
	return "-"
}
