package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/cli/serve"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
)

func (a *app) serveCommand() *cobra.Command {
	own := serve.Config{Definitions: a.definitions, Handlers: a.handlers}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: `serve runs the daemon of a storage directory until SIGINT or SIGTERM: then no new operation is accepted and
streams end. After SIGINT (Ctrl-C) work is interrupted and goes back into the queue. After SIGTERM commands keep
running, and the next daemon adopts them; --on-stop changes that: interrupt does what SIGINT does, wait starts nothing
new and waits until nothing runs; the next daemon takes the submits of that time. A second signal ends the daemon at
once. SIGHUP reads the job definitions again; they are also read when a file in their folders changes.

A line on stderr reports when it serves. Exit codes: 71 the address is in use, 73 another daemon has the storage.`,
		Example: "  jobdir serve --jobs jobs-example --storage ./storage",
		Args:    noArguments,
		RunE: a.runs(func(ctx context.Context, s *session, _ []string) error {
			return serve.Process(ctx, &s.Config.Config, own, Version(), s.streams)
		}),
	}
	config.AddFlags(cmd.Flags(), false)
	cmd.Flags().BoolVar(&own.Commit.WithoutJournal, "without-journal", false,
		"take over a storage whose journal is lost or damaged: what its files say counts")
	return cmd
}

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
