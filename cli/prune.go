package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/backend"
	"github.com/jobdir/jobdir/cli/term"
)

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
