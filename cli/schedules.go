package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.schedules(cmd.Context(), conf, asJSON)
		},
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

func (a *app) schedules(ctx context.Context, conf *config.Loaded, asJSON bool) error {
	c, err := a.connect(ctx, conf)
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
		for _, s := range all {
			raw = append(raw, s.Raw)
		}
		return a.streams.JSON(map[string]any{"schedules": raw, "count": len(raw)})
	}
	var rows [][]string
	for _, s := range all {
		next := "off"
		if s.Enabled {
			next = slotText(s.Next)
		}
		last := s.Operation
		if s.Skipped != "" {
			last = "skipped " + slotText(s.Last) + ": " + s.Skipped
		}
		if last == "" {
			last = "-"
		}
		rows = append(rows, []string{s.Job, s.Cron, s.Timezone, next, last})
	}
	return a.streams.Table([]string{"JOB", "CRON", "ZONE", "NEXT", "LAST"}, rows)
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
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.switchSchedules(cmd.Context(), conf, args, on)
		},
	}
}

func (a *app) switchSchedules(ctx context.Context, conf *config.Loaded, addresses []string, on bool) error {
	each := func(do func(group, job string) error) error {
		var failed []error
		for _, address := range addresses {
			group, job, ok := strings.Cut(address, "/")
			if !ok || group == "" || job == "" {
				failed = append(failed, exit.Usagef("%q is not a job: give GROUP/JOB; 'jobdir schedules' lists the jobs with a schedule", address))
				continue
			}
			failed = append(failed, do(group, job))
		}
		return errors.Join(failed...)
	}
	return a.reach(ctx, conf, func(c *client.Client) error {
		return each(func(group, job string) error {
			s, err := c.EnableSchedule(ctx, group, job, on)
			if err != nil {
				return err
			}
			if !on {
				a.streams.Notice("%s starts no more by its schedule", s.Job)
				return nil
			}
			a.streams.Notice("%s starts at %s", s.Job, slotText(s.Next))
			return nil
		})
	}, func(tree *statefs.Tree) error {
		return each(func(group, job string) error {
			if err := tree.EnableSchedule(group+"-"+job, on); err != nil {
				return err
			}
			a.streams.Notice("no daemon is running on %s: the request for %s/%s waits on disk for the next one", tree.Dir(), group, job)
			return nil
		})
	})
}
