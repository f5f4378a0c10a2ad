package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/backend"
)

func (a *app) schedulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedules",
		Short: "List the jobs that start by themselves, and when",
		Long: `schedules lists the schedules of all jobs: when each starts next, what it started last, and why it started
nothing then. 'jobdir schedules disable GROUP/JOB' switches one off until 'enable': it makes the file
schedules/GROUP-JOB.disabled in the storage, so it also works while no daemon runs, and by touch and rm.`,
		Args: noArguments,
		RunE: a.runs(listSchedules),
	}
	jsonFlag(cmd)
	cmd.AddCommand(
		a.switchCommand("enable", "Let jobs start by their schedules", true),
		a.switchCommand("disable", "Keep jobs from starting by their schedules", false),
	)
	return cmd
}

func listSchedules(ctx context.Context, s *session, _ []string) error {
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	all, err := c.Schedules(ctx)
	if err != nil {
		return err
	}
	var raw []json.RawMessage
	var rows [][]string
	for i := range all {
		at := &all[i]
		raw = append(raw, at.Raw)
		next := "off"
		if at.Enabled {
			next = slotText(at.Next)
		}
		last := cmp.Or(at.Operation, "-")
		if at.Skipped != "" {
			last = "skipped " + slotText(at.Last) + ": " + at.Skipped
		}
		rows = append(rows, []string{at.Job, at.Cron, at.Timezone, next, last})
	}
	return printList(s, "schedules", raw, []string{"JOB", "CRON", "ZONE", "NEXT", "LAST"}, rows)
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
		ValidArgsFunction: a.suggestions(findAddresses),
		RunE: a.opens("", func(ctx context.Context, s *session, b *backend.Backend, addresses []string) error {
			return each(addresses, func(address string) error { return s.switchSchedule(ctx, b, address, on) })
		}),
	}
}

func (s *session) switchSchedule(ctx context.Context, b *backend.Backend, address string, on bool) error {
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
}
