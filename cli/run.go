package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

type runOptions struct {
	detach bool
	raw    bool
}

func (a *app) runCommand() *cobra.Command {
	var opts runOptions
	cmd := &cobra.Command{
		Use:   "run GROUP/JOB [NAME=VALUE...]",
		Short: "Start an operation, show its log, and exit with its outcome",
		Long: `run starts an operation and writes its log to stdout while it grows. A summary goes to stderr at the end, and
the exit code is the outcome: 0 success, 1 failure, 2 partial, 130 cancelled, 3 when it waits for a person (the reason
and the commands that continue it are printed), 75 when the outcome is not known.

On a terminal, Ctrl-C offers to cancel the operation, to leave it running, or to keep watching; elsewhere, and when it
is pressed twice, the operation is left running. An operation never ends because its watcher does.`,
		Example:           "  jobdir run files/checksum path=. ",
		Args:              needs("GROUP/JOB"),
		ValidArgsFunction: a.completeJob,
		RunE:              a.follows(opts.run),
	}
	flags := cmd.Flags()
	flags.BoolVarP(&opts.detach, "detach", "d", false, "print the ID and return at once")
	flags.BoolVar(&opts.raw, "raw", false, "write the stream as the daemon sends it, with header and footer")
	flags.Bool("json", false, "write the log to stderr, and the footer as JSON to stdout")
	return cmd
}

func (opts *runOptions) run(ctx context.Context, s *session, args []string) error {
	group, job, err := jobAddress(args[0], "jobs' lists the jobs")
	if err != nil {
		return err
	}
	if opts.raw && (s.json || opts.detach) {
		return exit.Usagef("--raw goes with neither --json nor --detach")
	}
	params, err := parsePairs(args[1:])
	if err != nil {
		return err
	}
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	op, err := c.SubmitText(ctx, group, job, params)
	if err != nil {
		return err
	}
	switch {
	case opts.detach && s.json:
		return s.streams.JSON(op.Raw)
	case opts.detach:
		return s.streams.Line("%s", op.ID)
	}
	s.streams.Notice("started %s", op.ID)
	w := &watcher{
		streams: s.streams, client: c, id: op.ID, to: s.streams.Out, signals: make(chan os.Signal, 2),
		wrote: make(chan struct{}, 1),
	}
	if s.json {
		w.to = s.streams.Err
	}
	signal.Notify(w.signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(w.signals)
	footer, err := w.watch(ctx, func(ctx context.Context) (*client.Footer, error) {
		return c.FollowTo(ctx, op.ID, 0, w.receiver(opts.raw))
	})
	if err != nil {
		return explainCut(err)
	}
	return s.finish(op.ID, footer)
}

// finish prints the result of an operation and returns it as the exit code.
func (s *session) finish(id statefs.ID, footer *client.Footer) error {
	s.streams.Notice("%s", summary(id, footer))
	if s.json {
		if err := s.streams.JSON(footer.Raw); err != nil {
			return err
		}
	}
	if code := exit.Outcome(footer.Result); code != exit.Success {
		return exit.With(code)
	}
	return nil
}

// summary formats the result as one line for people.
func summary(id statefs.ID, f *client.Footer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", id, f.Result)
	if f.Processed > 0 || f.Failed > 0 {
		fmt.Fprintf(&b, ", %d processed, %d failed", f.Processed, f.Failed)
	}
	if f.Error != nil && f.Error.Message != "" {
		fmt.Fprintf(&b, ": %s", f.Error.Message)
	}
	return b.String()
}

// explainCut adds a hint to the error of an interrupted stream.
func explainCut(err error) error {
	cut, ok := errors.AsType[*client.CutError](err)
	if !ok {
		return err
	}
	return fmt.Errorf("%w; the operation may still run: 'jobdir logs -f --offset %d %s' continues here", err, cut.Offset, cut.ID)
}

// parsePairs reads NAME=VALUE arguments.
func parsePairs(pairs []string) (map[string]string, error) {
	params := map[string]string{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, exit.Usagef("%q is not a parameter: give NAME=VALUE", pair)
		}
		if _, twice := params[name]; twice {
			return nil, exit.Usagef("parameter %q is given twice", name)
		}
		params[name] = value
	}
	return params, nil
}
