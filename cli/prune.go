package cli

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
)

type pruneOptions struct {
	dryRun bool
	json   bool
}

func (a *app) pruneCommand() *cobra.Command {
	var opts pruneOptions
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Delete ended operations that are not to be kept longer",
		Long: `prune deletes the operations that the retention settings do not keep, and prints each with the reason. A
daemon does the same automatically, by its own settings; without one, prune holds the lock of the storage while it
runs. It keeps operations that are live or pinned, that another one retries, that a live one comes after, or whose
result is still to be delivered.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.prune(cmd.Context(), conf, opts)
		},
	}
	cmd.Flags().BoolVarP(&opts.dryRun, "dry-run", "n", false, "only print what would be deleted")
	jsonFlag(cmd, &opts.json)
	return cmd
}

func (a *app) prune(ctx context.Context, conf *config.Loaded, opts pruneOptions) error {
	var pruned client.Pruned
	err := a.reach(ctx, conf, func(c *client.Client) error {
		answer, err := c.Prune(ctx, opts.dryRun)
		if err == nil {
			pruned = *answer
		}
		return err
	}, func(tree *statefs.Tree) error {
		victims, err := pruneTree(ctx, tree, &conf.Config, opts.dryRun)
		pruned.Count = len(victims)
		for _, v := range victims {
			pruned.Operations = append(pruned.Operations, client.PrunedOperation(v))
			pruned.Bytes += v.Bytes
		}
		return err
	})
	if err != nil {
		return err
	}
	if opts.json {
		return a.streams.JSON(map[string]any{
			"operations": append([]client.PrunedOperation{}, pruned.Operations...), "count": pruned.Count, "bytes": pruned.Bytes,
			"dry_run": opts.dryRun,
		})
	}
	for _, op := range pruned.Operations {
		if err := a.streams.Line("%s\t%s\t%d", op.ID, op.Reason, op.Bytes); err != nil {
			return err
		}
	}
	if more := pruned.Count - len(pruned.Operations); more > 0 {
		a.streams.Notice("and %d more", more)
	}
	done := "deleted"
	if opts.dryRun {
		done = "would be deleted"
	}
	a.streams.Notice("%s, %d bytes: %s", term.Plural(pruned.Count, "operation", "operations"), pruned.Bytes, done)
	return nil
}

// pruneTree prunes a storage without a daemon.
func pruneTree(
	ctx context.Context, tree *statefs.Tree, conf *config.Config, dryRun bool,
) (victims []history.Victim, err error) {
	owner, err := statefs.Own(tree)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, owner.Release()) }()
	store, err := history.Open(owner, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	store.SetDeletedIDRetention(conf.Upkeep.IdempotencyAge)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	group.Go(func() { _ = store.Run(running) }) // it always returns nil
	store.CaughtUp()
	if store.Ready() != nil {
		select {
		case <-store.Built():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if dryRun {
		guards, err := guardsOf(owner)
		if err != nil {
			return nil, err
		}
		return store.Plan(ctx, conf.Upkeep.Retention, guards, time.Now())
	}
	return store.Prune(ctx, conf.Upkeep.Retention, func() (history.Guards, error) { return guardsOf(owner) }, time.Now())
}

// guardsOf finds reasons to keep finished operations that are not in the index.
func guardsOf(owner *statefs.Owner) (g history.Guards, err error) {
	if g.Undelivered, err = owner.Undelivered(); err != nil {
		return g, err
	}
	listing, err := owner.List()
	if err != nil {
		return g, err
	}
	for _, marker := range listing.Markers {
		if rec, err := owner.ReadRecord(marker.ID); err == nil {
			g.Refer(rec)
		}
	}
	return g, nil
}
