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

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

type runOptions struct {
	detach bool
	raw    bool
	json   bool
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
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			return a.streams.Following(cmd.Context(), func(ctx context.Context) error {
				return a.run(ctx, conf, opts,
					args[0], args[1:])
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&opts.detach, "detach", "d", false, "print the ID and return at once")
	flags.BoolVar(&opts.raw, "raw", false, "write the stream as the daemon sends it, with header and footer")
	flags.BoolVar(&opts.json, "json", false, "write the log to stderr, and the footer as JSON to stdout")
	return cmd
}

func (a *app) run(ctx context.Context, conf *config.Loaded, opts runOptions, address string, pairs []string) error {
	group, job, ok := strings.Cut(address, "/")
	if !ok || group == "" || job == "" {
		return exit.Usagef("%q is not a job: give GROUP/JOB; 'jobdir jobs' lists the jobs", address)
	}
	if opts.raw && (opts.json || opts.detach) {
		return exit.Usagef("--raw goes with neither --json nor --detach")
	}
	params, err := parsePairs(pairs)
	if err != nil {
		return err
	}
	c, err := a.connect(ctx, conf)
	if err != nil {
		return err
	}
	defer c.Close()
	op, err := c.SubmitText(ctx, group, job, params)
	if err != nil {
		return err
	}
	switch {
	case opts.detach && opts.json:
		return a.streams.JSON(op.Raw)
	case opts.detach:
		return a.streams.Line("%s", op.ID)
	}
	a.streams.Notice("started %s", op.ID)
	w := &watcher{app: a, client: c, id: op.ID, signals: make(chan os.Signal, 2), waitSettled: c.WaitSettled}
	signal.Notify(w.signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(w.signals)
	footer, err := w.watch(ctx, func(ctx context.Context) (*client.Footer, error) {
		to := a.streams.Out
		if opts.json {
			to = a.streams.Err
		}
		return c.FollowTo(ctx, op.ID, 0, w.receiver(w.gate(to), opts.raw))
	})
	if err != nil {
		return explainCut(err)
	}
	return a.finish(op.ID, footer, opts.json)
}

// finish prints the result of an operation and returns it as the exit code.
func (a *app) finish(id statefs.ID, footer *client.Footer, asJSON bool) error {
	a.streams.Notice("%s", summary(id, footer))
	if asJSON {
		if err := a.streams.JSON(footer.Raw); err != nil {
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
