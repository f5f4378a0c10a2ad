package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/cli/backend"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

func (a *app) laneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lane",
		Short: "Pause, resume, close, open or size lanes",
		Long: `lane changes lanes, at once and until the next change; "all" is every lane. Running operations are not
affected. Without a daemon the change waits on disk for the next one, like a file that a person puts into lanes/.`,
		Example: `  jobdir lane pause cookie --for 15m --reason "new cookies"
  jobdir lane capacity cookie 4`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("lane: what to do is missing: it is one of pause, resume, close, open, capacity")
			}
			return unknownCommand(cmd, args[0])
		},
		RunE: refusedByArgs,
	}
	cmd.AddCommand(
		a.holdCommand(client.PauseLane, "Start nothing in lanes; running operations continue"),
		a.holdCommand(client.ResumeLane, "Start operations of lanes again"),
		a.holdCommand(client.CloseLane, "Refuse submits to lanes; operations that wait there still start"),
		a.holdCommand(client.OpenLane, "Accept submits to lanes again"),
		a.capacityCommand(),
	)
	for _, sub := range cmd.Commands() {
		sub.ValidArgsFunction = a.completeLaneArguments()
	}
	return cmd
}

func (a *app) holdCommand(action client.LaneAction, short string) *cobra.Command {
	var lasts, until, reason string
	cmd := &cobra.Command{
		Use:   string(action) + " LANE...",
		Short: short,
		Args:  needs("a lane"),
		RunE: a.runs(func(ctx context.Context, s *session, args []string) error {
			hold, err := holdFlags(lasts, until, reason, time.Now())
			if err != nil {
				return err
			}
			return s.holdLanes(ctx, action, hold, args)
		}),
	}
	if action == client.PauseLane || action == client.CloseLane {
		cmd.Flags().StringVar(&lasts, "for", "", "it ends by itself after this time, such as 15m or 2d")
		cmd.Flags().StringVar(&until, "until", "",
			"it ends by itself at this time, such as 2026-11-23T09:00:00+01:00 or '2026-11-23 09:00'")
		cmd.Flags().StringVar(&reason, "reason", "", "shown wherever the lane or its waiting operations are listed")
	}
	return cmd
}

func holdFlags(lasts, until, reason string, now time.Time) (statefs.LaneHold, error) {
	hold := statefs.LaneHold{Reason: reason}
	switch {
	case lasts != "" && until != "":
		return hold, exit.Usagef("give --for or --until, not both")
	case lasts != "":
		d, ok := param.ParseDuration(lasts)
		if !ok || d <= 0 {
			return hold, exit.Usagef("flag --for: %q is not a time such as 90s, 15m or 2d", lasts)
		}
		hold.Until = new(now.Add(d))
	case until != "":
		at, err := momentFrom(until)
		if err != nil {
			return hold, exit.Usagef("flag --until: %w", err)
		}
		if !at.After(now) {
			return hold, exit.Usagef("flag --until: %s is over", until)
		}
		hold.Until = &at
	}
	return hold, nil
}

// momentFrom parses a time as people write it; a time without a zone is local.
func momentFrom(text string) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time such as 2026-11-23T09:00:00+01:00 or '2026-11-23 09:00'", text)
}

func (s *session) holdLanes(ctx context.Context, action client.LaneAction, hold statefs.LaneHold,
	lanes []string,
) error {
	done := map[client.LaneAction]string{
		client.PauseLane: "paused", client.ResumeLane: "resumed", client.CloseLane: "closed", client.OpenLane: "open",
	}[action]
	return s.changeLanes(ctx, lanes, func(b *backend.Backend, lane string) error {
		return b.Lanes.Control(ctx, lane, action, hold)
	}, func(lane string, all *statefs.LanesStatus) {
		s.streams.Notice("%s is %s%s", laneLabel(lane), done, holdText(&hold, false))
		noticeStillHeld(s.streams, lane, action, all)
	})
}

// noticeStillHeld prints what still holds a lane after a resume or open: the pause of all lanes if one lane
// was resumed, or the pauses of single lanes if all were.
func noticeStillHeld(out term.Streams, lane string, action client.LaneAction, all *statefs.LanesStatus) {
	if action == client.PauseLane || action == client.CloseLane {
		return
	}
	word, held := "paused", func(paused, _ *statefs.LaneHold) bool { return paused != nil }
	if action == client.OpenLane {
		word, held = "closed", func(_, closed *statefs.LaneHold) bool { return closed != nil }
	}
	if lane != statefs.AllLanes {
		if held(all.Paused, all.Closed) {
			out.Notice("it stays %s with all lanes: 'jobdir lane %s all' ends that", word, action)
		}
		return
	}
	var still []string
	for i := range all.Lanes {
		if l := &all.Lanes[i]; held(l.Paused, l.Closed) {
			still = append(still, l.Name)
		}
	}
	if len(still) > 0 {
		out.Notice("%s by itself: %s; 'jobdir lane %s %s' ends that", word, strings.Join(still, ", "), action,
			strings.Join(still, " "))
	}
}

func laneLabel(lane string) string {
	if lane == statefs.AllLanes {
		return "every lane"
	}
	return "lane " + lane
}

func (a *app) capacityCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "capacity LANE N",
		Short: "Change how many run in a lane at once",
		Long: `capacity sets how many operations run in a lane at once: a whole number, "unlimited", or "configured" for the
value in the configuration. A lower capacity ends no operation: none starts until enough have ended.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("capacity: expected a lane and a number, as in 'jobdir lane capacity cookie 4'")
			}
			return nil
		},
		RunE: a.runs(setCapacity),
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if number := negative(err); number != "" {
			_, err = parseCapacity(number)
		}
		return exit.Usagef("%w", plainFlagError(err))
	})
	return cmd
}

// parseCapacity parses the capacity of a command line.
func parseCapacity(text string) (n int, err error) {
	if n, err = statefs.ParseLaneCapacity(text); err != nil {
		return 0, fmt.Errorf("%w, nor \"configured\"", err)
	}
	return n, nil
}

func setCapacity(ctx context.Context, s *session, args []string) error {
	change := func(b *backend.Backend, lane string) error { return b.Lanes.ResetCapacity(ctx, lane) }
	if args[1] != "configured" {
		n, err := parseCapacity(args[1])
		if err != nil {
			return exit.Usagef("%w", err)
		}
		change = func(b *backend.Backend, lane string) error { return b.Lanes.SetCapacity(ctx, lane, n) }
	}
	return s.changeLanes(ctx, args[:1], change, func(lane string, all *statefs.LanesStatus) {
		for i := range all.Lanes {
			if l := &all.Lanes[i]; l.Known && (l.Name == lane || lane == statefs.AllLanes) {
				s.streams.Notice("lane %s has capacity %s", l.Name, capacityText(l.Capacity))
			}
		}
	})
}

// changeLanes changes each lane and prints the result.
func (s *session) changeLanes(ctx context.Context, lanes []string, change func(*backend.Backend, string) error,
	show func(string, *statefs.LanesStatus),
) error {
	b, err := s.open(ctx, "the change waits on disk until one is")
	if err != nil {
		return err
	}
	return each(lanes, func(lane string) error {
		if err := change(b, lane); err != nil {
			return err
		}
		all, err := b.Lanes.Status(ctx)
		if err == nil {
			show(lane, all)
		}
		return err
	})
}
