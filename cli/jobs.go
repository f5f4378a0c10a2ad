package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/client"
)

func (a *app) jobsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "jobs [GROUP/JOB]",
		Short: "List the jobs that can be started, or show one of them",
		Long: `jobs lists the jobs of the daemon, or those in the folders of --jobs when none answers. A parameter in
brackets is optional. For one job it shows the parameters, and the steps in the order in which they run. 'jobdir
validate' reports the mistakes of a definition that is missing here.`,
		Args:              atMostOne("GROUP/JOB"),
		ValidArgsFunction: a.completeOneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return a.showJob(cmd.Context(), conf, args[0], asJSON)
			}
			return a.jobs(cmd.Context(), conf, asJSON)
		},
	}
	config.AddFlag(cmd.Flags(), "jobs")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) jobs(ctx context.Context, conf *config.Loaded, asJSON bool) error {
	jobs, err := a.findJobs(ctx, conf)
	if err != nil {
		return err
	}
	if asJSON {
		all := make([]json.RawMessage, 0, len(jobs))
		for _, j := range jobs {
			all = append(all, j.Raw)
		}
		return a.streams.JSON(map[string]any{"jobs": all, "count": len(all)})
	}
	var rows [][]string
	for _, j := range jobs {
		rows = append(rows, []string{j.Address(), cmp.Or(parameters(j.Params), "-"), cmp.Or(j.Summary, "-")})
	}
	return a.streams.Table([]string{"JOB", "PARAMETERS", "SUMMARY"}, rows)
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

// findJobs gets the jobs from the daemon, or else from the folders.
func (a *app) findJobs(ctx context.Context, conf *config.Loaded) ([]client.Job, error) {
	c, err := a.connect(ctx, conf)
	if err == nil {
		defer c.Close()
		return c.Jobs(ctx)
	}
	if !client.Unreachable(err) || a.serverAddress() != "" || len(conf.Jobs) == 0 {
		return nil, err
	}
	var jobs []client.Job
	for _, d := range a.localJobs(conf).All() {
		job, err := describe(d)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, *job)
	}
	return jobs, nil
}

// localJobs reads the job folders because no daemon answers.
func (a *app) localJobs(conf *config.Loaded) *catalog.Catalog {
	a.streams.Notice("no daemon is running on %s: these are the jobs of the folders", conf.Storage)
	all := a.catalog(conf.Jobs, a.options.Definitions)
	if err := all.Reload(); err != nil {
		a.streams.Notice("%v", err)
	}
	return all
}

// describe returns the description of a job that a daemon would give.
func describe(d *catalog.Definition) (*client.Job, error) {
	members := map[string]any{
		"group": d.Group, "name": d.Name, "summary": d.Summary,
		"params": append([]param.Param{}, d.Params...), "work": d.Work(),
	}
	if len(d.Steps) > 0 {
		members["steps"] = d.Steps
	}
	if len(d.Milestones) > 0 {
		members["milestones"] = d.Milestones
	}
	var job client.Job
	data, err := json.Marshal(members)
	if err == nil {
		err = json.Unmarshal(data, &job)
	}
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", d.Address(), err)
	}
	return &job, nil
}

// catalog makes a catalog with the handlers of the program.
func (a *app) catalog(dirs []string, extra []catalog.Source) *catalog.Catalog {
	return catalog.New(a.catalogOptions(dirs, extra))
}

func (a *app) catalogOptions(dirs []string, extra []catalog.Source) catalog.Options {
	return catalog.Options{
		Dirs: dirs, Extra: extra,
		Handlers: func() []string { return slices.Collect(maps.Keys(a.options.Handlers)) },
	}
}
