package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/cli/top"
)

func (a *app) topCommand() *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch lanes, what runs, and what waits and why",
		Long: `top shows lanes, running operations with their progress, and waiting ones with the reason, updated once a
second, until q or Ctrl-C. WAITED and WORKED are median and 99th percentile of the last minutes. The data comes from
the event stream and from counters: the operations are listed once, the newest two hundred of a state.

Without a terminal, and with --once or --json, it prints the screen once and ends.`,
		Args: noArguments,
		RunE: a.follows(func(ctx context.Context, s *session, _ []string) error {
			return s.top(ctx, !once && !s.json && term.IsTerminal(s.streams.Out))
		}),
	}
	cmd.Flags().BoolVar(&once, "once", false, "print one picture and end")
	jsonFlag(cmd)
	return cmd
}

func (s *session) top(ctx context.Context, live bool) error {
	notes := &top.Notes{}
	if live {
		s.Notice = term.Streams{Err: notes}.Notice // the view shows notes about the connection
	}
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	if live {
		return top.Watch(ctx, c, s.streams, notes)
	}
	return top.Print(ctx, c, s.streams, s.json)
}
