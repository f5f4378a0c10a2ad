package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

func (a *app) lanesCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lanes",
		Short: "List the lanes and limits",
		Long: `lanes lists the lanes: how many run and wait in each, how many may run at once, and why nothing starts or no
submit is accepted; then the limits. Without a daemon it reads the configuration and the directory.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.lanes(cmd.Context(), conf, asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) lanes(ctx context.Context, conf *config.Loaded, asJSON bool) error {
	var all *statefs.LanesStatus
	err := a.reach(ctx, conf, func(c *client.Client) (err error) {
		all, err = c.Lanes(ctx)
		return err
	}, func(tree *statefs.Tree) (err error) {
		a.streams.Notice("no daemon is running on %s: the output is read from the configuration and the directory", tree.Dir())
		all, err = lanesOf(tree, conf)
		return err
	})
	if err != nil {
		return err
	}
	if asJSON {
		return a.streams.JSON(all)
	}
	return a.showLanes(all)
}

func (a *app) showLanes(all *statefs.LanesStatus) error {
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
	if err := a.streams.Table([]string{"LANE", "CAPACITY", "RUNNING", "WAITING", "STATE"}, lanes); err != nil {
		return err
	}
	for _, l := range all.Limits {
		state := "-"
		if !l.Known {
			state = "not in the configuration"
		}
		limits = append(limits, []string{l.Name, capacityText(l.Capacity), strconv.Itoa(l.Running), state})
	}
	if len(limits) > 0 {
		if err := a.streams.Line(""); err != nil {
			return err
		}
		if err := a.streams.Table([]string{"LIMIT", "CAPACITY", "RUNNING", "STATE"}, limits); err != nil {
			return err
		}
	}
	for _, p := range problems {
		a.streams.Notice("%s: %s", term.Printable(p.File), term.Printable(p.Reason))
	}
	return nil
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
		text += " until " + hold.Until.Local().Format("2006-01-02 15:04:05")
	}
	if hold.By != "" {
		text += " by " + term.Printable(hold.By)
	}
	if hold.Reason != "" {
		text += ": " + term.Printable(hold.Reason)
	}
	return text
}

// lanesOf returns the status of the lanes without a daemon.
func lanesOf(tree *statefs.Tree, conf *config.Loaded) (*statefs.LanesStatus, error) {
	running, waiting, err := countLanes(tree)
	if err != nil {
		return nil, err
	}
	all := &statefs.LanesStatus{Limits: []statefs.LimitStatus{}}
	read := func(lane string, control statefs.LaneControl) (v statefs.LaneValue, there bool,
		problems []statefs.LaneProblem,
	) {
		f := statefs.LaneFile{Lane: lane, Control: control}
		v, err := tree.ReadLane(f)
		if bad, ok := errors.AsType[*statefs.LaneFileError](err); ok {
			return v, false, []statefs.LaneProblem{{File: "lanes/" + f.String(), Reason: bad.Reason}}
		}
		return v, err == nil, nil
	}
	hold := func(lane string, control statefs.LaneControl) (*statefs.LaneHold, []statefs.LaneProblem) {
		v, there, problems := read(lane, control)
		if !there {
			return nil, problems
		}
		return &v.Hold, problems
	}
	var more []statefs.LaneProblem
	all.Paused, all.Problems = hold(statefs.AllLanes, statefs.LanePaused)
	all.Closed, more = hold(statefs.AllLanes, statefs.LaneClosed)
	all.Problems = append(all.Problems, more...)
	every, hasEvery, more := read(statefs.AllLanes, statefs.LaneCapacity)
	all.Problems = append(all.Problems, more...)
	names := maps.Clone(running)
	maps.Copy(names, waiting)
	for name := range conf.Queue.Lanes {
		names[name] = 0
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c, known := conf.Queue.Lanes[name]
		l := statefs.LaneStatus{
			Name: name, Known: known, Capacity: statefs.LaneCapacityOf(c.Capacity),
			Configured: statefs.LaneCapacityOf(c.Capacity),
			Running:    running[name], Waiting: waiting[name], PausedByAll: all.Paused != nil, ClosedByAll: all.Closed != nil,
		}
		v, there, problems := read(name, statefs.LaneCapacity)
		if !there {
			v, there = every, hasEvery
		}
		if there {
			l.Capacity = statefs.LaneCapacityOf(v.Capacity)
		}
		l.Paused, more = hold(name, statefs.LanePaused)
		l.Problems = slices.Concat(problems, more)
		l.Closed, more = hold(name, statefs.LaneClosed)
		l.Problems = append(l.Problems, more...)
		if l.Paused == nil {
			l.Paused = all.Paused
		}
		if l.Closed == nil {
			l.Closed = all.Closed
		}
		all.Lanes = append(all.Lanes, l)
	}
	for _, name := range slices.Sorted(maps.Keys(conf.Queue.Limits)) {
		all.Limits = append(all.Limits, statefs.LimitStatus{
			Name: name, Known: true,
			Capacity: statefs.LaneCapacityOf(conf.Queue.Limits[name]),
		})
	}
	return all, nil
}

// countLanes counts running and waiting operations by lane, from the markers and records.
func countLanes(tree *statefs.Tree) (running, waiting map[string]int, err error) {
	listing, err := tree.List()
	if err != nil {
		return nil, nil, err
	}
	running, waiting = map[string]int{}, map[string]int{}
	for _, marker := range listing.Markers {
		if marker.State != statefs.Queued && marker.State != statefs.Running {
			continue
		}
		rec, err := tree.ReadRecord(marker.ID)
		if errors.Is(err, fs.ErrNotExist) {
			continue // foreign
		}
		if err != nil {
			return nil, nil, fmt.Errorf("count what the lanes hold: %w", err)
		}
		lane := rec.Lane
		if lane == "" {
			lane = catalog.DefaultLane
		}
		if marker.State == statefs.Queued {
			waiting[lane]++
		} else {
			running[lane]++
		}
	}
	return running, waiting, nil
}
