package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/jobdir/jobdir/statefs/api"
)

// Schedule is the schedule of one job; package api has its members.
type Schedule = api.Schedule

// Schedules returns the schedules of all jobs that have one, sorted by the address of the job.
func (c *Client) Schedules(ctx context.Context) ([]Schedule, error) {
	var answer api.Schedules
	if err := c.call(ctx, http.MethodGet, "/api/v1/schedules", nil, nil, &answer); err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
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
	var answer Schedule
	path := "/api/v1/schedules/" + url.PathEscape(group) + "/" + url.PathEscape(job) + "/" + action
	if err := c.call(ctx, http.MethodPost, path, nil, nil, &answer); err != nil {
		return nil, fmt.Errorf("%s the schedule of %s/%s: %w", action, group, job, err)
	}
	return &answer, nil
}
