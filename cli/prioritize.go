package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

func (a *app) prioritizeCommand() *cobra.Command {
	var priority int
	cmd := &cobra.Command{
		Use:   "prioritize ID...",
		Short: "Let waiting operations start earlier",
		Long: `prioritize puts operations before all others that wait in their lane, or with --priority gives them a priority:
higher ones start first, and 0 is usual. What runs is not changed. Without a daemon the request waits on disk for the
next one.`,
		Args:              needs("an ID"),
		ValidArgsFunction: a.completeIDs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			var wanted *int
			if cmd.Flags().Changed("priority") {
				wanted = &priority
			}
			return a.prioritize(cmd.Context(), conf, wanted, args)
		},
	}
	cmd.Flags().IntVar(&priority, "priority", 0, "the priority; without it the first place in the lane")
	return cmd
}

func (a *app) prioritize(ctx context.Context, conf *loaded, priority *int, texts []string) error {
	return a.reach(ctx, conf, func(c *client.Client) error {
		return resolveRemote(ctx, c).each(texts, func(id statefs.ID) error {
			answer, err := c.Prioritize(ctx, id, priority)
			if err != nil {
				return err
			}
			a.streams.say("%s", answer.Message)
			return nil
		})
	}, func(tree *statefs.Tree) error {
		a.streams.say("no daemon is running on %s: a request waits on disk until one is", tree.Dir())
		var args json.RawMessage
		if priority != nil {
			args = fmt.Appendf(nil, `{"priority":%d}`, *priority)
		}
		return resolveLocal(tree).each(texts, func(id statefs.ID) error {
			if err := tree.Request(ctx, id, statefs.Prioritize, args); err != nil {
				return err
			}
			a.streams.say("Prioritize requested for operation '%s'", id)
			return nil
		})
	})
}
