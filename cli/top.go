package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/cli/top"
)

type topOptions struct {
	once bool
	json bool
}

func (a *app) topCommand() *cobra.Command {
	var opts topOptions
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch lanes, what runs, and what waits and why",
		Long: `top shows lanes, running operations with their progress, and waiting ones with the reason, updated once a
second, until q or Ctrl-C. WAITED and WORKED are median and 99th percentile of the last minutes. The data comes from
the event stream and from counters: the operations are listed once, the newest two hundred of a state.

Without a terminal, and with --once or --json, it prints the screen once and ends.`,
		Args: noArguments,
		RunE: a.follows(opts.show),
	}
	cmd.Flags().BoolVar(&opts.once, "once", false, "print one picture and end")
	jsonFlag(cmd, &opts.json)
	return cmd
}

func (opts *topOptions) show(ctx context.Context, s *session, _ []string) error {
	notes := &top.Notes{}
	live := !opts.once && !opts.json && term.IsTerminal(s.streams.Out)
	if live {
		s.Notice = term.Streams{Err: notes}.Notice // the view shows notes about the connection
	}
	c, err := s.Connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if live {
		return top.Watch(ctx, c, s.streams, notes)
	}
	return top.Print(ctx, c, s.streams, opts.json)
}
