package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/keeper"
	"github.com/jobdir/jobdir/statefs"
)

// keeperCommand is the process that holds the commands of a storage. The daemon starts it; it is not for people.
func (a *app) keeperCommand() *cobra.Command {
	var storage, durability string
	cmd := &cobra.Command{
		Use:    "keeper",
		Short:  "Hold the commands of a storage while daemons come and go",
		Hidden: true,
		Args:   noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if storage == "" {
				return usagef("keeper: --storage is missing; the daemon starts keepers by itself")
			}
			return keeper.Main(cmd.Context(), keeper.Options{
				Dir: storage, Build: build(), Durability: statefs.Durability(durability), Warden: []string{"warden"},
			})
		},
	}
	// Not from the configuration: a keeper does what the daemon that has started it says.
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
		DisableFlagParsing: true, // its arguments are orders of a keeper
		RunE: func(cmd *cobra.Command, orders []string) error {
			return keeper.Warden(cmd.Context(), orders, cmd.InOrStdin())
		},
	}
}

// build names this program as exactly as can be: two builds of one version differ in their files.
func build() string {
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return Version()
	}
	return fmt.Sprintf("%s %d %d", Version(), info.Size(), info.ModTime().UnixNano())
}
