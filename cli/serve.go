package cli

import (
	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/serve"
)

func (a *app) serveCommand() *cobra.Command {
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			own := serve.Config{Definitions: a.options.Definitions, Handlers: a.options.Handlers}
			return serve.Process(cmd.Context(), &conf.Config, own, Version(), a.streams)
		},
	}
	config.AddFlags(cmd.Flags(), false)
	return cmd
}
