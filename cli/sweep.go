package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

type sweepOptions struct {
	dryRun bool
	json   bool
	force  string
}

func (a *app) sweepCommand() *cobra.Command {
	var opts sweepOptions
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Remove state files that belong to nothing",
		Long: `sweep finds files in the storage that belong to no operation or contradict each other, and prints what it
does with each and why. The daemon does the same every minute; without one, sweep holds the lock of the storage while
it runs.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.sweep(cmd.Context(), conf, opts)
		},
	}
	cmd.Flags().StringVar(&opts.force, "force", "",
		"remove the marker and the requests of the foreign operation `ID`, also while its process lives")
	cmd.Flags().BoolVarP(&opts.dryRun, "dry-run", "n", false, "only print what would be done")
	jsonFlag(cmd, &opts.json)
	return cmd
}

// sweepForeign removes foreign operations from the storage. It works on the directory, like rm(1).
func (a *app) sweepForeign(conf *config.Loaded, text string, dryRun bool) ([]statefs.Finding, error) {
	id, err := statefs.ParseID(text)
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	tree, err := a.tree(conf, errors.New("sweep --force works on it"))
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	if dryRun {
		return nil, exit.Usagef("sweep --force names one operation: there is nothing to try with --dry-run")
	}
	files, err := tree.RemoveForeign(id)
	var findings []statefs.Finding
	for _, file := range files {
		findings = append(findings, statefs.Finding{
			File: "jobs/" + file, Action: statefs.SweepRemove,
			Reason: "removed by a person",
		})
	}
	return findings, err
}

func (a *app) sweep(ctx context.Context, conf *config.Loaded, opts sweepOptions) error {
	var findings []statefs.Finding
	var err error
	if opts.force != "" {
		findings, err = a.sweepForeign(conf, opts.force, opts.dryRun)
	} else {
		findings, err = a.sweepAll(ctx, conf, opts)
	}
	return a.printFindings(findings, opts, err)
}

func (a *app) sweepAll(ctx context.Context, conf *config.Loaded, opts sweepOptions) (findings []statefs.Finding, err error) {
	err = a.reach(ctx, conf, func(c *client.Client) (err error) {
		findings, err = c.Sweep(ctx, opts.dryRun)
		return err
	}, func(tree *statefs.Tree) (err error) {
		if opts.dryRun {
			findings, err = tree.PlanSweep(nil)
			return err
		}
		owner, err := statefs.Own(tree)
		if err != nil {
			return err
		}
		findings, err = owner.Sweep(nil)
		return errors.Join(err, owner.Release())
	})
	return findings, err
}

func (a *app) printFindings(findings []statefs.Finding, opts sweepOptions, err error) error {
	// Print the findings even if some files could not be examined.
	if opts.json {
		return errors.Join(err, a.streams.JSON(map[string]any{
			"findings": append([]statefs.Finding{}, findings...),
			"count":    len(findings), "dry_run": opts.dryRun,
		}))
	}
	for _, f := range findings {
		if err := a.streams.Line("%s\t%s\t%s", f.Action, f.File, f.Reason); err != nil {
			return err
		}
	}
	if err == nil {
		a.streams.Notice("%s", term.Plural(len(findings), "finding", "findings"))
	}
	return err
}
