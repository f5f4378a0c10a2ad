package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Lanes returns the state of the lanes and limits.
func (c *Client) Lanes(ctx context.Context) (*statefs.LanesStatus, error) {
	return fetch[statefs.LanesStatus](ctx, c, "get the lanes", http.MethodGet, "/api/v1/lanes", nil, nil)
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

// ControlLane pauses, resumes, closes or opens a lane, or with the name statefs.AllLanes every lane. Of hold it uses
// Until and Reason, for a pause and a close. It returns when the action has taken effect. The error is an *[Error] with
// status 404 when there is no such lane.
func (c *Client) ControlLane(ctx context.Context, lane string, action LaneAction, hold statefs.LaneHold) error {
	query := url.Values{}
	if hold.Until != nil {
		query.Set("until", hold.Until.Format(time.RFC3339Nano))
	}
	if hold.Reason != "" {
		query.Set("reason", hold.Reason)
	}
	path := lanePath(lane) + "/" + url.PathEscape(string(action))
	return c.change(ctx, fmt.Sprintf("%s lane %s", action, lane), http.MethodPost, path, query, nil)
}

// SetLaneCapacity sets how many operations run in a lane at once; a negative capacity is unlimited. It returns when
// that has taken effect. The errors are those of ControlLane.
func (c *Client) SetLaneCapacity(ctx context.Context, lane string, capacity int) error {
	return c.patchLane(ctx, lane, statefs.LaneCapacityOf(capacity))
}

// ResetLaneCapacity restores the configured capacity of a lane.
func (c *Client) ResetLaneCapacity(ctx context.Context, lane string) error {
	return c.patchLane(ctx, lane, "configured")
}

func (c *Client) patchLane(ctx context.Context, lane string, capacity any) error {
	return c.change(ctx, "change lane "+lane, http.MethodPatch, lanePath(lane), nil, map[string]any{"capacity": capacity})
}

func lanePath(lane string) string { return "/api/v1/lanes/" + url.PathEscape(lane) }
