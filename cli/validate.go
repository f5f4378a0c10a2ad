package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/daemon/outbox"
)

func (a *app) validateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate [FOLDER|FILE...]",
		Short: "Check job definitions",
		Long: `validate reads job definitions as the daemon does and prints their problems, one a line, as
FILE:LINE:COLUMN: MESSAGE. Lines that begin with "hint:" name settings without effect, lines that begin with "warning:"
dangerous ones, such as a reference inside the script of sh -c; a job with either can be used. Without arguments
validate reads the folders of --jobs. With a configuration file it also checks that the lanes and limits of the jobs
are in it. Exit code 1: there is a problem.`,
		RunE: a.runs(validate),
	}
	config.AddFlag(cmd.Flags(), "jobs")
	jsonFlag(cmd)
	return cmd
}

func validate(_ context.Context, s *session, paths []string) error {
	if len(paths) == 0 {
		paths = s.Config.Jobs
	}
	if len(paths) == 0 {
		return exit.Usagef("there is nothing to check: give a folder or a file, or set --jobs")
	}
	var dirs, folders []string
	var files []catalog.Source
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return exit.NotFoundf("check definitions: %w", err)
		}
		if info.IsDir() {
			dirs = append(dirs, path)
			continue
		}
		if !info.Mode().IsRegular() { // opening a fifo would block
			return exit.Usagef("%s is not a regular file: give a definition file or a folder", path)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("check definitions: %w", err)
		}
		files = append(files, catalog.Source{Name: path, YAML: data})
		folders = append(folders, filepath.Dir(path))
	}
	options := s.Catalog
	options.Dirs, options.Extra = dirs, files
	allow, err := outbox.ParseAllow(s.Config.Outbox.WebhookAllow...)
	if err != nil {
		return err
	}
	options.Targets = outbox.NewShared(s.Config.Storage, allow, 0)
	if len(files) > 0 {
		options.ExternalJobs = s.siblingJobs(folders)
	}
	all := catalog.New(options)
	found, _ := errors.AsType[catalog.Problems](all.Reload())
	problems := append(append(catalog.Problems{}, found...), unknownQueues(s.Config, all.All())...)
	jobs, hints, warnings := []string{}, catalog.Problems{}, catalog.Problems{}
	for _, d := range all.All() {
		jobs = append(jobs, d.Address())
		hints = append(hints, d.Hints()...)
		warnings = append(warnings, d.Warnings()...)
	}
	if err := s.printProblems(jobs, problems, hints, warnings); err != nil {
		return err
	}
	if len(problems) > 0 {
		return exit.With(exit.Failure)
	}
	return nil
}

// printProblems prints what is wrong with the jobs: problems, and the hints and warnings, with which a job can be used.
func (s *session) printProblems(jobs []string, problems, hints, warnings catalog.Problems) error {
	if s.json {
		return s.streams.JSON(map[string]any{"jobs": jobs, "problems": problems, "hints": hints, "warnings": warnings})
	}
	found := term.Plural(len(jobs), "job", "jobs") + ", " + term.Plural(len(problems), "problem", "problems")
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.Error())
	}
	remark := func(all catalog.Problems, one, many string) {
		for _, p := range all {
			lines = append(lines, one+": "+p.Error())
		}
		if len(all) > 0 {
			found += ", " + term.Plural(len(all), one, many)
		}
	}
	remark(hints, "hint", "hints")
	remark(warnings, "warning", "warnings")
	for _, line := range lines {
		if err := s.streams.Line("%s", line); err != nil {
			return err
		}
	}
	s.streams.Notice("%s", found)
	return nil
}

// siblingJobs returns the jobs in the folders of separately checked files and in those of --jobs, because a
// checked job may name one of them as its next job.
func (s *session) siblingJobs(folders []string) func(group, name string) *catalog.Definition {
	var files []catalog.Source
	for _, folder := range slices.Compact(slices.Sorted(slices.Values(folders))) {
		entries, _ := os.ReadDir(folder) // a folder that cannot be read has no jobs
		for _, e := range entries {
			path := filepath.Join(folder, e.Name())
			if ext := filepath.Ext(path); !e.Type().IsRegular() || ext != ".yaml" && ext != ".yml" {
				continue
			}
			if data, err := os.ReadFile(path); err == nil {
				files = append(files, catalog.Source{Name: path, YAML: data})
			}
		}
	}
	options := s.Catalog
	options.Dirs, options.Extra = s.Config.Jobs, nil
	daemons := catalog.New(options)
	_ = daemons.Reload() // problems of these folders are not reported
	options.Dirs, options.Extra = nil, files
	options.ExternalJobs = daemons.Get
	near := catalog.New(options)
	_ = near.Reload()
	return func(group, name string) *catalog.Definition {
		if d := near.Get(group, name); d != nil {
			return d
		}
		return daemons.Get(group, name)
	}
}

// unknownQueues finds jobs whose lane or limit is not in the configuration. It reports nothing if there is no
// configuration file.
func unknownQueues(conf *config.Loaded, jobs []*catalog.Definition) (problems catalog.Problems) {
	if conf.File == "" {
		return nil
	}
	limits := slices.Sorted(maps.Keys(conf.Queue.Limits))
	look := func(who string, at catalog.Position, lane string, takes []string) {
		note := func(what, name string, known []string) {
			problems = append(problems, at.Problem(knownNames(what, known), "%s: there is no %s %q in %s", who, what, name,
				conf.File))
		}
		if _, ok := conf.Queue.Lanes[lane]; !ok && lane != "" {
			note("lane", lane, conf.LaneNames())
		}
		for _, name := range takes {
			if _, ok := conf.Queue.Limits[name]; !ok {
				note("limit", name, limits)
			}
		}
	}
	for _, def := range jobs {
		look("job "+def.Address(), def.Position(), def.Lane, def.Limits)
		for _, s := range def.Steps {
			look("step "+s.Name+" of job "+def.Address(), s.Position(), s.Lane, s.Limits)
		}
	}
	return problems
}

func knownNames(what string, known []string) string {
	if len(known) == 0 {
		return "there are no " + what + "s in it"
	}
	return "the " + what + "s are " + strings.Join(known, ", ")
}
