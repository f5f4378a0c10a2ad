package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/backend"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

type sweepOptions struct {
	dryRun bool
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
		RunE: a.runs(opts.sweep),
	}
	cmd.Flags().StringVar(&opts.force, "force", "",
		"remove the marker and the requests of the foreign operation `ID`, also while its process lives")
	cmd.Flags().BoolVarP(&opts.dryRun, "dry-run", "n", false, "only print what would be done")
	jsonFlag(cmd)
	return cmd
}

func (opts *sweepOptions) sweep(ctx context.Context, s *session, _ []string) error {
	findings, err := opts.find(ctx, s)
	// Print the findings even if some files could not be examined.
	if s.json {
		return errors.Join(err, s.streams.JSON(api.Swept{
			Count: len(findings), DryRun: opts.dryRun, Findings: append([]statefs.Finding{}, findings...),
		}))
	}
	for _, f := range findings {
		if err := s.streams.Line("%s\t%s\t%s", f.Action, f.File, f.Reason); err != nil {
			return err
		}
	}
	if err == nil {
		s.streams.Notice("%s", term.Plural(len(findings), "finding", "findings"))
	}
	return err
}

func (opts *sweepOptions) find(ctx context.Context, s *session) ([]statefs.Finding, error) {
	if opts.force != "" {
		return opts.removeForeign(s)
	}
	b, err := s.open(ctx, "")
	if err != nil {
		return nil, err
	}
	return b.Sweep(ctx, opts.dryRun)
}

// removeForeign removes a foreign operation from the storage.
func (opts *sweepOptions) removeForeign(s *session) (findings []statefs.Finding, err error) {
	id, err := statefs.ParseID(opts.force)
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	if opts.dryRun {
		return nil, exit.Usagef("sweep --force names one operation: there is nothing to try with --dry-run")
	}
	files, err := s.RemoveForeign(id)
	for _, file := range files {
		findings = append(findings, statefs.Finding{
			File: "jobs/" + file, Action: statefs.SweepRemove, Reason: "removed by a person",
		})
	}
	return findings, err
}

func (a *app) pruneCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Delete ended operations that are not to be kept longer",
		Long: `prune deletes the operations that the retention settings do not keep, and prints each with the reason. A
daemon does the same automatically, by its own settings; without one, prune holds the lock of the storage while it
runs. It keeps operations that are live or pinned, that another one retries, that a live one comes after, or whose
result is still to be delivered.`,
		Args: noArguments,
		RunE: a.opens("", func(ctx context.Context, s *session, b *backend.Backend, _ []string) error {
			return s.prune(ctx, b, dryRun)
		}),
	}
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only print what would be deleted")
	jsonFlag(cmd)
	return cmd
}

func (s *session) prune(ctx context.Context, b *backend.Backend, dryRun bool) error {
	pruned, err := b.Prune(ctx, dryRun)
	if err != nil {
		return err
	}
	if s.json {
		return s.streams.JSON(pruned)
	}
	for _, op := range pruned.Operations {
		if err := s.streams.Line("%s\t%s\t%d", op.ID, op.Reason, op.Bytes); err != nil {
			return err
		}
	}
	if more := pruned.Count - len(pruned.Operations); more > 0 {
		s.streams.Notice("and %d more", more)
	}
	done := "deleted"
	if dryRun {
		done = "would be deleted"
	}
	s.streams.Notice("%s, %d bytes: %s", term.Plural(pruned.Count, "operation", "operations"), pruned.Bytes, done)
	return nil
}
