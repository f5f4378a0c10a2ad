package backend

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
)

// Jobs are the jobs that can be started.
type Jobs interface {
	Jobs(ctx context.Context) ([]client.Job, error)
	Job(ctx context.Context, group, name string) (*client.Job, error)
}

// OpenJobs returns the jobs of the daemon, or else those of the folders of --jobs.
func (t *Target) OpenJobs(ctx context.Context) (jobs Jobs, done func(), err error) {
	c, err := t.Connect(ctx)
	if err == nil {
		return c, c.Close, nil
	}
	if !client.Unreachable(err) || t.address() != "" || len(t.Config.Jobs) == 0 {
		return nil, nil, err
	}
	t.Notice("no daemon is running on %s: these are the jobs of the folders", t.Config.Storage)
	options := t.Catalog
	options.Dirs = t.Config.Jobs
	all := folders{catalog.New(options), t.Config.Jobs}
	if err := all.catalog.Reload(); err != nil {
		t.Notice("%v", err)
	}
	return all, func() {}, nil
}

// folders are the jobs in the folders of job definitions.
type folders struct {
	catalog *catalog.Catalog
	dirs    []string
}

func (f folders) Jobs(context.Context) (jobs []client.Job, err error) {
	for _, d := range f.catalog.All() {
		job, err := describe(d)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, *job)
	}
	return jobs, nil
}

func (f folders) Job(_ context.Context, group, name string) (*client.Job, error) {
	if d := f.catalog.Get(group, name); d != nil {
		return describe(d)
	}
	return nil, exit.NotFoundf("there is no job %s/%s in %s", group, name, strings.Join(f.dirs, ", "))
}

// describe returns the description of a job that a daemon would give.
func describe(d *catalog.Definition) (*client.Job, error) {
	job := d.DescribeWhole()
	var err error
	if job.Raw, err = json.Marshal(job); err != nil {
		return nil, fmt.Errorf("job %s: %w", d.Address(), err)
	}
	return &job, nil
}
