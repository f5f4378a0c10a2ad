package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/catalog"
)

func (a *app) validateCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "validate [FOLDER|FILE...]",
		Short: "Check job definitions",
		Long: `validate reads job definitions as the daemon does and prints what is wrong with them, one problem a line, as
FILE:LINE:COLUMN: what. Without arguments it reads the folders of --jobs. Exit code 1: there is a problem.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				args = conf.Jobs
			}
			return a.validate(args, asJSON)
		},
	}
	addSettingFlag(cmd.Flags(), settingFor("jobs"))
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) validate(paths []string, asJSON bool) error {
	if len(paths) == 0 {
		return usagef("there is nothing to check: give a folder or a file, or set --jobs")
	}
	var dirs []string
	var files []catalog.Source
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return &notFoundError{err: fmt.Errorf("check definitions: %w", err)}
		}
		if info.IsDir() {
			dirs = append(dirs, path)
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("check definitions: %w", err)
		}
		files = append(files, catalog.Source{Name: path, YAML: data})
	}
	all := a.catalog(dirs, files)
	// The error is the same as Problems, which are data here.
	_ = all.Reload()
	problems := all.Problems()
	jobs := []string{}
	for _, d := range all.All() {
		jobs = append(jobs, d.Address())
	}
	if asJSON {
		if err := a.streams.json(map[string]any{"jobs": jobs, "problems": problems}); err != nil {
			return err
		}
	} else {
		for _, p := range problems {
			if err := a.streams.line("%s", p.Error()); err != nil {
				return err
			}
		}
		a.streams.say("%s, %s", plural(len(jobs), "job", "jobs"), plural(len(problems), "problem", "problems"))
	}
	if len(problems) > 0 {
		return &codeError{code: exitFailure}
	}
	return nil
}
