package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/jobdir/jobdir/statefs/api"
)

// Schedule is the schedule of one job; package api has its members.
type Schedule = api.Schedule

// Schedules returns the schedules of all jobs that have one, sorted by the address of the job.
func (c *Client) Schedules(ctx context.Context) ([]Schedule, error) {
	answer, err := fetch[api.Schedules](ctx, c.conn, "list schedules", http.MethodGet, "/api/v1/schedules", nil, nil)
	if err != nil {
		return nil, err
	}
	return answer.Schedules, nil
}

// EnableSchedule switches the schedule of a job on or off, and returns it. The error is an *[Error] with status 404
// when there is no such job, and 409 when it has no schedule.
func (c *Client) EnableSchedule(ctx context.Context, group, job string, on bool) (*Schedule, error) {
	action := "disable"
	if on {
		action = "enable"
	}
	what := fmt.Sprintf("%s the schedule of %s/%s", action, group, job)
	return fetch[Schedule](ctx, c.conn, what, http.MethodPost, "/api/v1/schedules"+jobPath(group, job)+"/"+action, nil, nil)
}
