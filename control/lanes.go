package control

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// The lanes are changed as by a person: by writing files. Then the daemon reconciles the lanes at once, so that the
// answer shows the effect.

// laneStatus is what the daemon knows of lanes.
type laneStatus interface {
	// Status returns the state of the lanes and limits. Apply reads the lane files: when it returns, nothing starts that
	// they do not allow.
	Status() statefs.LanesStatus
	Apply()
}

// laneControl shows and changes the lanes.
type laneControl struct {
	tree   *statefs.Tree
	live   *liveTable
	daemon laneStatus
}

// holdParameters are those of a hold.
var holdParameters = []front.Parameter{
	text("for", "it ends by itself after this time (90s, 15m, 2d)"),
	text("until", "it ends by itself at this time (RFC 3339)"),
	text("reason", "shown as the reason why its operations wait"),
}

// routes are the routes of lanes.
func (s *laneControl) routes() []front.Route {
	one := ok("The lane as it stands now; all of them when the name is all")
	const body = "The parameters of the query as a JSON object of strings; nothing is {}"
	return []front.Route{
		{
			Method: "GET", Path: "/api/v1/lanes", Handle: s.lane,
			Summary: "The lanes and limits, and why nothing starts in a lane",
			Answers: ok("The lanes and limits", startupResponse),
		},
		{
			Method: "GET", Path: "/api/v1/lanes/:lane", Handle: s.lane, Summary: "One lane",
			Answers: append(slices.Clone(one), startupResponse),
		},
		{
			Method: "PATCH", Path: "/api/v1/lanes/:lane", Handle: s.changeLane, Summary: "Change how many run in a lane at once",
			Body: `{"capacity": 4}; null is any number, "configured" what the configuration says`, Answers: one,
		},
		{
			Method: "POST", Path: "/api/v1/lanes/:lane/pause", Handle: s.holdLane,
			Summary: "Start nothing in a lane; what runs goes on",
			Query:   holdParameters, Body: body, Answers: one,
		},
		{
			Method: "POST", Path: "/api/v1/lanes/:lane/resume", Handle: s.holdLane,
			Summary: "Start operations of a lane again; of all: end the pause of all lanes, and keep the pauses of single lanes",
			Answers: one,
		},
		{
			Method: "POST", Path: "/api/v1/lanes/:lane/close", Handle: s.holdLane,
			Summary: "Refuse submits to a lane with 503; what waits there goes on",
			Query:   holdParameters, Body: body, Answers: one,
		},
		{
			Method: "POST", Path: "/api/v1/lanes/:lane/open", Handle: s.holdLane, Summary: "Take submits to a lane again",
			Answers: one,
		},
	}
}

// lane is GET /api/v1/lanes and GET /api/v1/lanes/{lane}.
func (s *laneControl) lane(w *front.Response, r *front.Request) error {
	if err := cmp.Or(r.Query().Err(), s.live.refuseAtStartup()); err != nil {
		return err
	}
	return s.sendLane(w, cmp.Or(r.Param("lane"), statefs.AllLanes))
}

// sendLaneAfterChange applies a change of the lane files at once, and answers with the lane once every live operation
// is loaded.
func (s *laneControl) sendLaneAfterChange(w *front.Response, r *front.Request, name string) error {
	s.daemon.Apply()
	if err := s.live.awaitStartup(r.Context()); err != nil {
		return err
	}
	return s.sendLane(w, name)
}

// sendLane answers with a lane, or with all lanes.
func (s *laneControl) sendLane(w *front.Response, name string) error {
	all := s.daemon.Status()
	if name == statefs.AllLanes {
		return w.SendJSON(http.StatusOK, all)
	}
	lane, err := laneOf(&all, name)
	if err != nil {
		return err
	}
	return w.SendJSON(http.StatusOK, lane)
}

// laneOf returns the status of a lane, or a refusal that lists the lanes.
func laneOf(all *statefs.LanesStatus, name string) (*statefs.LaneStatus, error) {
	if lane := all.Lane(name); lane != nil {
		return lane, nil
	}
	names := []string{}
	for i := range all.Lanes {
		names = append(names, all.Lanes[i].Name)
	}
	return nil, front.Refuse(http.StatusNotFound, "There is no lane '%s'; the lanes are %s", front.Printable(name, 64),
		strings.Join(names, ", ")).With("lanes", names)
}

// laneParameter returns the lane that a request changes: a lane of the configuration, or AllLanes.
func (s *laneControl) laneParameter(r *front.Request) (string, error) {
	name := r.Param("lane")
	if name == statefs.AllLanes {
		return name, nil
	}
	all := s.daemon.Status()
	lane, err := laneOf(&all, name)
	if err != nil {
		return "", err
	}
	if !lane.Known {
		return "", front.Refuse(http.StatusConflict,
			"Lane '%s' is not in the configuration of the daemon; only what waits or runs there keeps it in the list", name)
	}
	return name, nil
}

// changeLane is PATCH /api/v1/lanes/{lane}.
func (s *laneControl) changeLane(w *front.Response, r *front.Request) error {
	name, err := s.laneParameter(r)
	if err != nil {
		return err
	}
	if err := r.Query().Err(); err != nil {
		return err
	}
	capacity, err := readCapacity(r)
	if err != nil {
		return err
	}
	names := []string{name}
	if name == statefs.AllLanes {
		all := s.daemon.Status()
		names = names[:0]
		for i := range all.Lanes {
			if all.Lanes[i].Known {
				names = append(names, all.Lanes[i].Name)
			}
		}
		if _, err := s.tree.Lanes.Release(statefs.LaneFile{Lane: name, Control: statefs.LaneCapacity}); err != nil {
			// a file that a person made, which overrides the configuration
			return err
		}
	}
	for _, name := range names {
		if capacity == capacityFromConfig {
			_, err = s.tree.Lanes.Release(statefs.LaneFile{Lane: name, Control: statefs.LaneCapacity})
		} else {
			err = s.tree.Lanes.SetCapacity(name, capacity)
		}
		if err != nil {
			return err
		}
	}
	return s.sendLaneAfterChange(w, r, name)
}

// capacityFromConfig means the capacity of the configuration.
const capacityFromConfig = -2

// readCapacity parses {"capacity": 4}.
func readCapacity(r *front.Request) (int, error) {
	body, err := r.ReadBody()
	if err != nil {
		return 0, err
	}
	members, err := catalog.ReadObject(body)
	if err != nil {
		return 0, err
	}
	for member := range members {
		if member != "capacity" {
			return 0, front.Refuse(http.StatusBadRequest, "Unknown member '%s'; a lane has capacity",
				front.Printable(member, 64)).With("parameter", front.Printable(member, 64))
		}
	}
	raw, ok := members["capacity"]
	if !ok {
		return 0, front.Refuse(http.StatusBadRequest, `Missing member 'capacity', as in {"capacity": 4}`).With("parameter",
			"capacity")
	}
	text := strings.TrimSpace(string(raw))
	switch text {
	case "null", `"unlimited"`:
		return -1, nil
	case `"configured"`:
		return capacityFromConfig, nil
	}
	var number json.Number
	if json.Unmarshal(raw, &number) == nil && text[0] != '"' {
		if n, err := statefs.ParseLaneCapacity(number.String()); err == nil {
			return n, nil
		}
	}
	return 0, front.Invalid("capacity",
		`%s is neither a whole number from 0 to %d nor null (any number) nor "configured"`, front.Printable(text, 64),
		statefs.MaxLaneCapacity)
}

// holdLane is POST /api/v1/lanes/{lane}/pause, resume, close and open.
func (s *laneControl) holdLane(w *front.Response, r *front.Request) error {
	name, err := s.laneParameter(r)
	if err != nil {
		return err
	}
	values, err := r.Values()
	if err != nil {
		return err
	}
	if err := r.BodyParameters(values); err != nil {
		return err
	}
	by, err := r.Creator()
	if err != nil {
		return err
	}
	action := path.Base(r.URL.Path)
	file := statefs.LaneFile{Lane: name, Control: statefs.LanePaused}
	if action == "close" || action == "open" {
		file.Control = statefs.LaneClosed
	}
	if action == "resume" || action == "open" {
		if err := front.QueryOf(values, nil).Err(); err != nil {
			return err
		}
		if _, err := s.tree.Lanes.Release(file); err != nil {
			return err
		}
	} else {
		hold, err := holdFrom(values, s.tree.Now())
		if err != nil {
			return err
		}
		hold.By = by
		if hold.By == statefs.HeldByBreaker {
			hold.By = "token " + by // the plain name is reserved for the breaker
		}
		if err := s.tree.Lanes.Hold(file, hold); err != nil {
			return err
		}
	}
	return s.sendLaneAfterChange(w, r, name)
}

// maxHold is the longest hold: longer than any plan, and far below the limit of time values.
const maxHold = 10 * 365 * 24 * time.Hour

func holdFrom(values url.Values, now time.Time) (statefs.LaneHold, error) {
	q := front.QueryOf(values, holdParameters)
	hold := statefs.LaneHold{Reason: q.Get("reason")}
	if len(hold.Reason) > statefs.MaxLaneReason {
		q.Refuse(front.Invalid("reason", "it is longer than %d bytes", statefs.MaxLaneReason))
	}
	switch {
	case q.Has("for") && q.Has("until"):
		q.Refuse(front.Invalid("until", "give it or 'for', not both"))
	case q.Has("for"):
		d, ok := param.ParseDuration(q.Get("for"))
		if !ok || d <= 0 || d > maxHold {
			q.Refuse(front.Invalid("for", "%q is not a time such as 90s, 15m or 2d", front.Printable(q.Get("for"), 64)))
		}
		hold.Until = new(now.Add(d).Truncate(time.Millisecond))
	case q.Has("until"):
		until, err := time.Parse(time.RFC3339, q.Get("until"))
		if err != nil {
			q.Refuse(front.Invalid("until", "%q is not a time such as 2026-11-23T09:00:00+01:00",
				front.Printable(q.Get("until"), 64)))
		}
		if !until.After(now) || until.Year() > 9998 {
			q.Refuse(front.Invalid("until", "%s is over, or too far away", until.Format(time.RFC3339)))
		}
		hold.Until = &until
	}
	return hold, q.Err()
}

// laneProblems returns the problems of lanes that an administrator should know.
func laneProblems(all *statefs.LanesStatus) []api.LaneProblem {
	found := []api.LaneProblem{}
	note := func(lane string, p statefs.LaneProblem) {
		found = append(found, api.LaneProblem{Lane: lane, File: p.File, Error: p.Reason})
	}
	for i := range all.Lanes {
		lane := &all.Lanes[i]
		for _, p := range lane.Problems {
			note(lane.Name, p)
		}
		if b := lane.Breaker; b != nil && slices.Contains([]string{"open", "trial"}, b.State) {
			reason := "its breaker has paused it"
			if lane.Paused != nil && lane.Paused.Reason != "" {
				reason += ": " + lane.Paused.Reason
			}
			found = append(found, api.LaneProblem{Lane: lane.Name, Breaker: b.State, Error: reason})
		}
	}
	for _, p := range all.Problems {
		note("", p)
	}
	return found
}
