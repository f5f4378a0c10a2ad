package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Schedule is the schedule of one job.
type Schedule struct {
	Job      string `json:"job"`
	Cron     string `json:"cron"`
	Timezone string `json:"timezone"`
	Overlap  string `json:"overlap"`
	Missed   string `json:"missed"`
	Enabled  bool   `json:"enabled"`
	// Next is the next slot, nil when the schedule is off.
	Next *time.Time `json:"next,omitempty"`
	// Last is the last slot that was handled, Operation the operation that the schedule started last, and Skipped why
	// Last started none.
	Last      *time.Time `json:"last,omitempty"`
	Operation string     `json:"operation,omitempty"`
	Skipped   string     `json:"skipped,omitempty"`

	// Raw is the whole JSON object that the daemon sent.
	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON implements json.Unmarshaler and keeps the whole object in Raw.
func (s *Schedule) UnmarshalJSON(data []byte) error {
	type plain Schedule
	if err := json.Unmarshal(data, (*plain)(s)); err != nil {
		return err
	}
	s.Raw = append(json.RawMessage(nil), data...)
	return nil
}

// Schedules returns the schedules of all jobs that have one, sorted by the address of the job.
func (c *Client) Schedules(ctx context.Context) ([]Schedule, error) {
	var answer struct {
		Schedules []Schedule `json:"schedules"`
	}
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
