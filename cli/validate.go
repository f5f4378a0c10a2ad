package cli

import (
	"context"
	"fmt"
	"io/fs"
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
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "validate [FOLDER|FILE...]",
		Short: "Check job definitions",
		Long: `validate reads job definitions as the daemon does and prints their problems, one a line, as
FILE:LINE:COLUMN: MESSAGE. Lines that begin with "hint:" name settings without effect, lines that begin with "warning:"
dangerous ones, such as a reference inside the script of sh -c; a job with either can be used. Without arguments
validate reads the folders of --jobs. With a configuration file it also checks that the lanes and limits of the jobs
are in it. Exit code 1: there is a problem.`,
		RunE: a.runs(func(_ context.Context, s *session, args []string) error {
			if len(args) == 0 {
				args = s.Config.Jobs
			}
			return s.validate(args, asJSON)
		}),
	}
	config.AddFlag(cmd.Flags(), "jobs")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (s *session) validate(paths []string, asJSON bool) error {
	if len(paths) == 0 {
		return exit.Usagef("there is nothing to check: give a folder or a file, or set --jobs")
	}
	var dirs, folders []string
	var files []catalog.Source
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return &exit.NotFoundError{Err: fmt.Errorf("check definitions: %w", err)}
		}
		if info.IsDir() {
			dirs = append(dirs, path)
			continue
		}
		data, err := readDefinition(path, info)
		if err != nil {
			return err
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
	// The error is the same as Problems, which are the output here.
	_ = all.Reload()
	problems := append(all.Problems(), unknownQueues(s.Config, all.All())...)
	jobs, hints, warnings := []string{}, catalog.Problems{}, catalog.Problems{}
	for _, d := range all.All() {
		jobs = append(jobs, d.Address())
		hints = append(hints, d.Hints()...)
		warnings = append(warnings, d.Warnings()...)
	}
	if asJSON {
		if err := s.streams.JSON(map[string]any{
			"jobs": jobs, "problems": problems, "hints": hints,
			"warnings": warnings,
		}); err != nil {
			return err
		}
	} else {
		for _, p := range problems {
			if err := s.streams.Line("%s", p.Error()); err != nil {
				return err
			}
		}
		for _, h := range hints {
			if err := s.streams.Line("hint: %s", h.Error()); err != nil {
				return err
			}
		}
		for _, w := range warnings {
			if err := s.streams.Line("warning: %s", w.Error()); err != nil {
				return err
			}
		}
		found := term.Plural(len(problems), "problem", "problems")
		if len(hints) > 0 {
			found += ", " + term.Plural(len(hints), "hint", "hints")
		}
		if len(warnings) > 0 {
			found += ", " + term.Plural(len(warnings), "warning", "warnings")
		}
		s.streams.Notice("%s, %s", term.Plural(len(jobs), "job", "jobs"), found)
	}
	if len(problems) > 0 {
		return exit.With(exit.Failure)
	}
	return nil
}

// readDefinition reads a named file. Opening a fifo would block, so it is refused.
func readDefinition(path string, info fs.FileInfo) ([]byte, error) {
	if !info.Mode().IsRegular() {
		return nil, exit.Usagef("%s is not a regular file: give a definition file or a folder", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("check definitions: %w", err)
	}
	return data, nil
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
func unknownQueues(conf *config.Loaded, jobs []*catalog.Definition) (problems []catalog.Problem) {
	if conf.File == "" {
		return nil
	}
	limits := slices.Sorted(maps.Keys(conf.Queue.Limits))
	look := func(who string, at catalog.Position, lane string, takes []string) {
		note := func(what, name string, known []string) {
			problems = append(problems, *at.Problem(knownNames(what, known), "%s: there is no %s %q in %s", who, what, name,
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
