package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// LaneService reads and changes the lanes; see [Client.Lanes].
type LaneService struct{ *conn }

// Lanes returns the lanes of the daemon. It sends nothing.
func (c *Client) Lanes() LaneService { return LaneService{c.conn} }

// Status returns the state of the lanes and limits.
func (l LaneService) Status(ctx context.Context) (*statefs.LanesStatus, error) {
	return fetch[statefs.LanesStatus](ctx, l.conn, "get the lanes", http.MethodGet, "/api/v1/lanes", nil, nil)
}

// LaneAction is an action on a lane.
type LaneAction string

// The actions on lanes. None affects what already runs in the lane.
const (
	PauseLane  LaneAction = "pause"  // nothing starts in it
	ResumeLane LaneAction = "resume" // the opposite
	CloseLane  LaneAction = "close"  // nothing is submitted to it
	OpenLane   LaneAction = "open"   // the opposite
)

// Control pauses, resumes, closes or opens a lane, or with the name statefs.AllLanes every lane. Of hold it uses
// Until and Reason, for a pause and a close. It returns when the action has taken effect. The error is an *[Error] with
// status 404 when there is no such lane.
func (l LaneService) Control(ctx context.Context, lane string, action LaneAction, hold statefs.LaneHold) error {
	query := url.Values{}
	if hold.Until != nil {
		query.Set("until", hold.Until.Format(time.RFC3339Nano))
	}
	if hold.Reason != "" {
		query.Set("reason", hold.Reason)
	}
	path := lanePath(lane) + "/" + url.PathEscape(string(action))
	return l.change(ctx, fmt.Sprintf("%s lane %s", action, lane), http.MethodPost, path, query, nil)
}

// SetCapacity sets how many operations run in a lane at once; a negative capacity is unlimited. It returns when
// that has taken effect. The errors are those of Control.
func (l LaneService) SetCapacity(ctx context.Context, lane string, capacity int) error {
	return l.patch(ctx, lane, statefs.LaneCapacityOf(capacity))
}

// ResetCapacity restores the configured capacity of a lane.
func (l LaneService) ResetCapacity(ctx context.Context, lane string) error {
	return l.patch(ctx, lane, "configured")
}

func (l LaneService) patch(ctx context.Context, lane string, capacity any) error {
	return l.change(ctx, "change lane "+lane, http.MethodPatch, lanePath(lane), nil, map[string]any{"capacity": capacity})
}

func lanePath(lane string) string { return "/api/v1/lanes/" + url.PathEscape(lane) }
