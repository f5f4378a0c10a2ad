package cli

import (
	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/statefs"
)

func (a *app) prioritizeCommand() *cobra.Command {
	var priority int
	opts := requestOptions{action: statefs.Prioritize}
	cmd := &cobra.Command{
		Use:   "prioritize ID...",
		Short: "Let waiting operations start earlier",
		Long: `prioritize puts operations before all others that wait in their lane, or with --priority gives them a
priority: higher ones start first, and 0 is the default. Running operations are not affected. Without a daemon the
request waits on disk for the next one.`,
		Args:              needs("an ID"),
		ValidArgsFunction: a.completeIDs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("priority") {
				opts.priority = &priority
			}
			return a.request(cmd.Context(), conf, opts, args)
		},
	}
	cmd.Flags().IntVar(&priority, "priority", 0, "the priority; without it the first place in the lane")
	addWait(cmd, &opts.wait, "it took effect")
	jsonFlag(cmd, &opts.json)
	return cmd
}
