package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
)

func (a *app) jobsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jobs [GROUP/JOB]",
		Short: "List the jobs that can be started, or show one of them",
		Long: `jobs lists the jobs of the daemon, or those in the folders of --jobs when none answers. A parameter in
brackets is optional. For one job it shows the parameters, and the steps in the order in which they run. 'jobdir
validate' reports the mistakes of a definition that is missing here.`,
		Args:              atMostOne("one GROUP/JOB"),
		ValidArgsFunction: a.completeOneJob,
		RunE:              a.runs(showJobs),
	}
	config.AddFlag(cmd.Flags(), "jobs")
	jsonFlag(cmd)
	return cmd
}

func showJobs(ctx context.Context, s *session, args []string) error {
	if len(args) == 1 {
		return s.showJob(ctx, args[0])
	}
	jobs, err := s.findJobs(ctx)
	if err != nil {
		return err
	}
	var all []json.RawMessage
	var rows [][]string
	for _, j := range jobs {
		all = append(all, j.Raw)
		rows = append(rows, []string{j.Address(), cmp.Or(parameters(j.Params), "-"), cmp.Or(j.Summary, "-")})
	}
	return printList(s, "jobs", all, []string{"JOB", "PARAMETERS", "SUMMARY"}, rows)
}

func parameters(all []client.Param) string {
	var words []string
	for _, p := range all {
		word := p.Name + "=" + strings.ToUpper(p.Type)
		if !p.Required {
			word = "[" + word + "]"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// showJob prints a job with its parameters and steps.
func (s *session) showJob(ctx context.Context, address string) error {
	group, name, err := jobAddress(address, "jobs' lists the jobs")
	if err != nil {
		return err
	}
	jobs, done, err := s.OpenJobs(ctx)
	if err != nil {
		return err
	}
	defer done()
	job, err := jobs.Job(ctx, group, name)
	if err != nil {
		return err
	}
	if s.json {
		return s.streams.JSON(job.Raw)
	}
	for _, line := range [][2]string{{"job", job.Address()}, {"summary", job.Summary}, {"work", job.Work}} {
		if line[1] == "" {
			continue
		}
		if err := s.streams.Line("%-9s %s", line[0], term.Printable(line[1])); err != nil {
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
		step := &job.Steps[i]
		steps = append(steps, []string{
			step.Name, cmp.Or(strings.Join(step.Needs, " "), "-"), step.Work, cmp.Or(stepNotes(step), "-"),
		})
	}
	for _, m := range job.Milestones {
		milestones = append(milestones, []string{m.Name, strings.Join(m.Steps, " ")})
	}
	return errors.Join(
		section(s.streams, []string{"PARAMETER", "TYPE", "DEFAULT", "SUMMARY"}, params),
		section(s.streams, []string{"STEP", "NEEDS", "WORK", "NOTES"}, steps),
		section(s.streams, []string{"MILESTONE", "STEPS"}, milestones))
}

// section prints a table after an empty line; it prints nothing if there are no rows.
func section(out term.Streams, head []string, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	return errors.Join(out.Line(""), out.Table(head, rows))
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
