package client

import (
	"context"
	"net/http"

	"github.com/jobdir/jobdir/statefs/api"
)

// The description of a job; package api has the members.
type (
	// Job is a job definition as the daemon describes it.
	Job = api.Job
	// Param is a parameter of a job.
	Param = api.Param
	// JobStep is a step as its job defines it.
	JobStep = api.JobStep
	// JobMilestone is a phase that the operation reaches when all of these steps are done.
	JobMilestone = api.JobMilestone
)

// Jobs returns all jobs.
func (c *Client) Jobs(ctx context.Context) ([]Job, error) {
	answer, err := fetch[api.Jobs](ctx, c.conn, "list jobs", http.MethodGet, "/api/v1/jobs", nil, nil)
	if err != nil {
		return nil, err
	}
	return answer.Jobs, nil
}

// Job returns one job. The error is an *[Error] with status 404 if it does not exist.
func (c *Client) Job(ctx context.Context, group, job string) (*Job, error) {
	return fetch[Job](ctx, c.conn, "read job "+group+"/"+job, http.MethodGet, "/api/v1/jobs"+jobPath(group, job), nil, nil)
}
