package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
)

// showJob prints a job with its parameters and steps.
func (a *app) showJob(ctx context.Context, conf *config.Loaded, address string, asJSON bool) error {
	job, err := a.findJob(ctx, conf, address)
	if err != nil {
		return err
	}
	if asJSON {
		return a.streams.JSON(job.Raw)
	}
	head := [][2]string{{"job", job.Address()}, {"summary", job.Summary}, {"work", job.Work}}
	for _, line := range head {
		if line[1] == "" {
			continue
		}
		if err := a.streams.Line("%-9s %s", line[0], term.Printable(line[1])); err != nil {
			return err
		}
	}
	var params, steps, milestones [][]string
	for _, p := range job.Params {
		value := "-"
		switch {
		case p.Required:
			value = "required"
		case len(p.Default) > 0:
			value = string(p.Default)
		}
		params = append(params, []string{p.Name, p.Type, term.Printable(value), cmp.Or(term.Printable(p.Summary), "-")})
	}
	for i := range job.Steps {
		s := &job.Steps[i]
		steps = append(steps, []string{s.Name, cmp.Or(strings.Join(s.Needs, " "), "-"), s.Work, cmp.Or(stepNotes(s), "-")})
	}
	for _, m := range job.Milestones {
		milestones = append(milestones, []string{m.Name, strings.Join(m.Steps, " ")})
	}
	return errors.Join(
		a.section([]string{"PARAMETER", "TYPE", "DEFAULT", "SUMMARY"}, params),
		a.section([]string{"STEP", "NEEDS", "WORK", "NOTES"}, steps),
		a.section([]string{"MILESTONE", "STEPS"}, milestones))
}

// section prints a table after an empty line; it prints nothing if there are no rows.
func (a *app) section(head []string, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	return errors.Join(a.streams.Line(""), a.streams.Table(head, rows))
}

// stepNotes returns the settings of a step that differ from the default.
func stepNotes(s *client.JobStep) string {
	var all []string
	add := func(is bool, format string, args ...any) {
		if is {
			all = append(all, term.Printable(fmt.Sprintf(format, args...)))
		}
	}
	add(s.Optional, "optional")
	add(s.Approve, "waits for an approval")
	add(s.When != "", "when %s", s.When)
	add(s.Milestone != "", "reaches %s", s.Milestone)
	add(len(s.Outputs) > 0, "leaves %s", strings.Join(s.Outputs, " "))
	add(s.Lane != "", "lane %s", s.Lane)
	add(len(s.Limits) > 0, "limits %s", strings.Join(s.Limits, " "))
	return strings.Join(all, "; ")
}

// findJob gets a job from the daemon, or else from the folders.
func (a *app) findJob(ctx context.Context, conf *config.Loaded, address string) (*client.Job, error) {
	group, name, ok := strings.Cut(address, "/")
	if !ok || group == "" || name == "" {
		return nil, exit.Usagef("%q is not a job: give GROUP/JOB; 'jobdir jobs' lists the jobs", address)
	}
	c, err := a.connect(ctx, conf)
	if err == nil {
		defer c.Close()
		return c.Job(ctx, group, name)
	}
	if !client.Unreachable(err) || a.serverAddress() != "" || len(conf.Jobs) == 0 {
		return nil, err
	}
	all := a.localJobs(conf).All()
	for _, d := range all {
		if d.Group == group && d.Name == name {
			return describe(d)
		}
	}
	return nil, &exit.NotFoundError{Err: fmt.Errorf("there is no job %s in %s", address, strings.Join(conf.Jobs, ", "))}
}
