package cli

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/backend"
)

func (a *app) schedulesCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "schedules",
		Short: "List the jobs that start by themselves, and when",
		Long: `schedules lists the schedules of all jobs: when each starts next, what it started last, and why it started
nothing then. 'jobdir schedules disable GROUP/JOB' switches one off until 'enable': it makes the file
schedules/GROUP-JOB.disabled in the storage, so it also works while no daemon runs, and by touch and rm.`,
		Args: noArguments,
		RunE: a.runs(func(ctx context.Context, s *session, _ []string) error { return s.schedules(ctx, asJSON) }),
	}
	jsonFlag(cmd, &asJSON)
	cmd.AddCommand(
		a.switchCommand("enable", "Let jobs start by their schedules", true),
		a.switchCommand("disable", "Keep jobs from starting by their schedules", false),
	)
	for _, sub := range cmd.Commands() {
		sub.Args = usageArgs(sub.Args)
	}
	return cmd
}

func (s *session) schedules(ctx context.Context, asJSON bool) error {
	c, err := s.Connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	all, err := c.Schedules(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		raw := make([]json.RawMessage, 0, len(all))
		for i := range all {
			raw = append(raw, all[i].Raw)
		}
		return s.streams.JSON(map[string]any{"schedules": raw, "count": len(raw)})
	}
	var rows [][]string
	for i := range all {
		at := &all[i]
		next := "off"
		if at.Enabled {
			next = slotText(at.Next)
		}
		last := at.Operation
		if at.Skipped != "" {
			last = "skipped " + slotText(at.Last) + ": " + at.Skipped
		}
		if last == "" {
			last = "-"
		}
		rows = append(rows, []string{at.Job, at.Cron, at.Timezone, next, last})
	}
	return s.streams.Table([]string{"JOB", "CRON", "ZONE", "NEXT", "LAST"}, rows)
}

// slotText formats a slot in its own time zone.
func slotText(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.Format("2006-01-02 15:04:05 -07:00")
}

func (a *app) switchCommand(name, short string, on bool) *cobra.Command {
	return &cobra.Command{
		Use:               name + " GROUP/JOB...",
		Short:             short,
		Args:              needs("GROUP/JOB"),
		ValidArgsFunction: a.completeJob,
		RunE: a.opens(func(ctx context.Context, s *session, b *backend.Backend, args []string) error {
			return s.switchSchedules(ctx, b, args, on)
		}),
	}
}

func (s *session) switchSchedules(ctx context.Context, b *backend.Backend, addresses []string, on bool) error {
	return each(addresses, func(address string) error {
		group, job, err := jobAddress(address, "schedules' lists the jobs with a schedule")
		if err != nil {
			return err
		}
		at, err := b.EnableSchedule(ctx, group, job, on)
		switch {
		case err != nil:
			return err
		case at == nil:
			s.noDaemon(b, "the request for "+address+" waits on disk for the next one")
		case on:
			s.streams.Notice("%s starts at %s", at.Job, slotText(at.Next))
		default:
			s.streams.Notice("%s starts no more by its schedule", at.Job)
		}
		return nil
	})
}
