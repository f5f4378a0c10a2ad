package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/statefs"
)

type deleteOptions struct {
	bulk bulkOptions
	json bool
}

func (a *app) deleteCommand() *cobra.Command {
	var opts deleteOptions
	cmd := &cobra.Command{
		Use:   "delete ID... | delete --status STATUS ...",
		Short: "Delete operations that have ended, with their logs and files",
		Long: `delete removes operations that have ended: by ID, or all that match a filter, after a confirmation. It keeps an
operation that is live or pinned, that another one retries, that a live one comes after, or whose result is still to
be delivered, and prints the reason. It needs a daemon.`,
		Example:           "  jobdir delete --status failed --job media/decode --until 7d",
		Args:              needs("an ID"),
		ValidArgsFunction: a.completeIDs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			if opts.bulk.given() {
				return a.bulk(cmd.Context(), conf, "delete", &opts.bulk, opts.json)
			}
			return a.delete(cmd.Context(), conf, args)
		},
	}
	opts.bulk.byFilter(cmd)
	jsonFlag(cmd, &opts.json)
	return cmd
}

func (a *app) delete(ctx context.Context, conf *loaded, texts []string) error {
	c, err := a.connect(ctx, conf)
	if err != nil {
		return err
	}
	defer c.Close()
	return resolveRemote(ctx, c).each(texts, func(id statefs.ID) error {
		if err := c.Delete(ctx, id); err != nil {
			return err
		}
		a.streams.notice("operation %s is deleted", id)
		return nil
	})
}
