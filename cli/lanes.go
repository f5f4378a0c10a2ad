package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/backend"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/statefs"
)

func (a *app) lanesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lanes",
		Short: "List the lanes and limits",
		Long: `lanes lists the lanes: how many run and wait in each, how many may run at once, and why nothing starts or no
submit is accepted; then the limits. Without a daemon it reads the configuration and the directory.`,
		Args: noArguments,
		RunE: a.opens("the output is read from the configuration and the directory", showLanes),
	}
	jsonFlag(cmd)
	return cmd
}

func showLanes(ctx context.Context, s *session, b *backend.Backend, _ []string) error {
	all, err := b.Lanes.Status(ctx)
	if err != nil {
		return err
	}
	if s.json {
		return s.streams.JSON(all)
	}
	out := s.streams
	var lanes, limits [][]string
	problems := slices.Clone(all.Problems)
	for i := range all.Lanes {
		l := &all.Lanes[i]
		lanes = append(lanes, []string{
			l.Name, capacityText(l.Capacity), strconv.Itoa(l.Running),
			strconv.Itoa(l.Waiting), laneState(l),
		})
		problems = append(problems, l.Problems...)
	}
	if err := out.Table([]string{"LANE", "CAPACITY", "RUNNING", "WAITING", "STATE"}, lanes); err != nil {
		return err
	}
	for _, l := range all.Limits {
		state := "-"
		if !l.Known {
			state = "not in the configuration"
		}
		limits = append(limits, []string{l.Name, capacityText(l.Capacity), strconv.Itoa(l.Running), state})
	}
	if err := section(out, []string{"LIMIT", "CAPACITY", "RUNNING", "STATE"}, limits); err != nil {
		return err
	}
	for _, p := range problems {
		out.Notice("%s: %s", term.Printable(p.File), term.Printable(p.Reason))
	}
	return nil
}

// completeLaneArguments suggests lanes, and the word that means all lanes.
func (a *app) completeLaneArguments() cobra.CompletionFunc {
	return a.inStorage(func(ctx context.Context, b *backend.Backend, args []string) ([]string, error) {
		found, err := lanesExcept(ctx, b, args)
		if len(args) == 0 {
			found = append(found, cobra.CompletionWithDesc(statefs.AllLanes, "every lane"))
		}
		return found, err
	})
}

// lanesExcept returns the lanes for a completion, each with the reason why it starts nothing.
func lanesExcept(ctx context.Context, b *backend.Backend, given []string) (found []string, err error) {
	all, err := b.Lanes.Status(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all.Lanes {
		if l := &all.Lanes[i]; !slices.Contains(given, l.Name) {
			found = append(found, cobra.CompletionWithDesc(l.Name, laneState(l)))
		}
	}
	return found, nil
}

func capacityText(n *int) string {
	if n == nil {
		return "unlimited"
	}
	return strconv.Itoa(*n)
}

// laneState describes in one line why a lane starts or accepts no operations.
func laneState(l *statefs.LaneStatus) string {
	var parts []string
	if !l.Known {
		parts = append(parts, "not in the configuration: nothing starts")
	}
	switch {
	case l.Breaker != nil && l.Breaker.State == "trial" && l.Breaker.Trial != (statefs.ID{}):
		parts = append(parts, "tries "+l.Breaker.Trial.String())
	case l.Breaker != nil && l.Breaker.State == "trial":
		parts = append(parts, "lets one operation through")
	case l.Paused != nil:
		parts = append(parts, "paused"+holdText(l.Paused, l.PausedByAll))
	}
	if l.Closed != nil {
		parts = append(parts, "closed"+holdText(l.Closed, l.ClosedByAll))
	}
	if l.NextStart != nil {
		parts = append(parts, "next start "+l.NextStart.Local().Format(time.TimeOnly))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, "; ")
}

func holdText(hold *statefs.LaneHold, every bool) string {
	var text string
	if every {
		text += " with all lanes"
	}
	if hold.Until != nil {
		text += " until " + term.Time(*hold.Until)
	}
	if hold.By != "" {
		text += " by " + term.Printable(hold.By)
	}
	if hold.Reason != "" {
		text += ": " + term.Printable(hold.Reason)
	}
	return text
}
