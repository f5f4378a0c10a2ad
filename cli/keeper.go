package cli

import (
	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/serve"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
)

// keeperCommand is the process that keeps the commands of a storage running. The daemon starts it; it is not
// for people.
func (a *app) keeperCommand() *cobra.Command {
	var storage, durability string
	cmd := &cobra.Command{
		Use:    "keeper",
		Short:  "Hold the commands of a storage while daemons come and go",
		Hidden: true,
		Args:   noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if storage == "" {
				return exit.Usagef("keeper: --storage is missing; the daemon starts keepers by itself")
			}
			return keeper.Main(cmd.Context(), keeper.Options{
				Dir: storage, Build: serve.Build(Version()), Durability: statefs.Durability(durability), Warden: []string{"warden"},
			})
		},
	}
	// A keeper reads no configuration: the daemon that starts it passes the settings.
	flags := cmd.Flags()
	flags.StringVar(&storage, "storage", "", "storage directory")
	flags.StringVar(&durability, "durability", string(statefs.Power), "durability of exit reports: power or process")
	return cmd
}

// wardenCommand is the process that waits for the end of a keeper. The keeper starts it; it is not for people.
func wardenCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "warden",
		Short:              "End what the commands of a killed keeper have left",
		Hidden:             true,
		DisableFlagParsing: true, // the keeper passes its arguments
		RunE: func(cmd *cobra.Command, orders []string) error {
			return keeper.Warden(cmd.Context(), orders, cmd.InOrStdin())
		},
	}
}
