package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os/user"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// lanes are the lanes of a storage directory.
type lanes struct{ *directory }

func (d lanes) Control(_ context.Context, lane string, action client.LaneAction, hold statefs.LaneHold) error {
	if err := d.check(lane); err != nil {
		return err
	}
	file := statefs.LaneFile{Lane: lane, Control: statefs.LanePaused}
	if action == client.CloseLane || action == client.OpenLane {
		file.Control = statefs.LaneClosed
	}
	if action == client.ResumeLane || action == client.OpenLane {
		_, err := d.tree.Lanes.Release(file)
		return err
	}
	if who, err := user.Current(); err == nil {
		hold.By = who.Username
	}
	return d.tree.Lanes.Hold(file, hold)
}

func (d lanes) SetCapacity(_ context.Context, lane string, capacity int) error {
	return d.each(lane, func(name string) error { return d.tree.Lanes.SetCapacity(name, capacity) })
}

func (d lanes) ResetCapacity(_ context.Context, lane string) error { return d.each(lane, d.reset) }

func (d lanes) reset(name string) error {
	_, err := d.tree.Lanes.Release(statefs.LaneFile{Lane: name, Control: statefs.LaneCapacity})
	return err
}

// each changes the capacity of a lane, or of every lane.
func (d lanes) each(lane string, change func(string) error) error {
	if err := d.check(lane); err != nil {
		return err
	}
	names := []string{lane}
	if lane == statefs.AllLanes {
		names = d.conf.LaneNames()
		if err := d.reset(lane); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := change(name); err != nil {
			return err
		}
	}
	return nil
}

// check refuses a lane that is not in the configuration. Without a configuration file it accepts any
// lane.
func (d lanes) check(lane string) error {
	switch {
	case lane == statefs.AllLanes:
		return nil
	case !statefs.ValidLane(lane):
		return exit.Usagef("%q cannot be the name of a lane", lane)
	case d.conf.File != "" && !slices.Contains(d.conf.LaneNames(), lane):
		return exit.NotFoundf("there is no lane %q in %s; the lanes are %s", lane, d.conf.File, strings.Join(d.conf.LaneNames(), ", "))
	}
	return nil
}

// Status reads the configuration and the directory.
func (d lanes) Status(context.Context) (*statefs.LanesStatus, error) {
	running, waiting, err := countLanes(d.tree)
	if err != nil {
		return nil, err
	}
	all := &statefs.LanesStatus{Limits: []statefs.LimitStatus{}}
	read := func(lane string, control statefs.LaneControl, problems *[]statefs.LaneProblem) *statefs.LaneValue {
		f := statefs.LaneFile{Lane: lane, Control: control}
		v, err := d.tree.Lanes.Read(f)
		if bad, ok := errors.AsType[*statefs.LaneFileError](err); ok {
			*problems = append(*problems, statefs.LaneProblem{File: "lanes/" + f.String(), Reason: bad.Reason})
		}
		if err != nil {
			return nil
		}
		return &v
	}
	hold := func(lane string, control statefs.LaneControl, problems *[]statefs.LaneProblem,
		every *statefs.LaneHold,
	) *statefs.LaneHold {
		if v := read(lane, control, problems); v != nil {
			return &v.Hold
		}
		return every
	}
	all.Paused = hold(statefs.AllLanes, statefs.LanePaused, &all.Problems, nil)
	all.Closed = hold(statefs.AllLanes, statefs.LaneClosed, &all.Problems, nil)
	every := read(statefs.AllLanes, statefs.LaneCapacity, &all.Problems)
	names := maps.Clone(running)
	maps.Copy(names, waiting)
	for name := range d.conf.Queue.Lanes {
		names[name] = 0
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c, known := d.conf.Queue.Lanes[name]
		l := statefs.LaneStatus{
			Name: name, Known: known, Capacity: statefs.LaneCapacityOf(c.Capacity),
			Configured: statefs.LaneCapacityOf(c.Capacity),
			Running:    running[name], Waiting: waiting[name], PausedByAll: all.Paused != nil, ClosedByAll: all.Closed != nil,
		}
		if v := cmp.Or(read(name, statefs.LaneCapacity, &l.Problems), every); v != nil {
			l.Capacity = statefs.LaneCapacityOf(v.Capacity)
		}
		l.Paused = hold(name, statefs.LanePaused, &l.Problems, all.Paused)
		l.Closed = hold(name, statefs.LaneClosed, &l.Problems, all.Closed)
		all.Lanes = append(all.Lanes, l)
	}
	for _, name := range slices.Sorted(maps.Keys(d.conf.Queue.Limits)) {
		all.Limits = append(all.Limits, statefs.LimitStatus{
			Name: name, Known: true,
			Capacity: statefs.LaneCapacityOf(d.conf.Queue.Limits[name]),
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
		lane := cmp.Or(rec.Lane, statefs.DefaultLane)
		if marker.State == statefs.Queued {
			waiting[lane]++
		} else {
			running[lane]++
		}
	}
	return running, waiting, nil
}
