package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

type logsOptions struct {
	follow bool
	offset int64
	step   string
	run    int
	oneRun bool // --run was given
	json   bool
}

func (a *app) logsCommand() *cobra.Command {
	var opts logsOptions
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Write the log of an operation",
		Long: `logs writes the log of a live or ended operation to stdout. With -f it continues until the operation ends; the
outcome goes to stderr and does not change the exit code ('jobdir wait' does that). With --json each line is an object
with its offset in the log, its text, and cut: true when the line is incomplete: the last one, or a piece of a line
longer than 64 KiB.

With --step it writes the output of the last run of that step, also of an optional step, which has a log of its own;
with --run that of an earlier run. When there is more than one, stderr lists them.

An ID may be shortened to its end, such as r42 or 42, or to a beginning that only one live operation has.`,
		Args:              exactlyOne("an ID"),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := a.load(cmd)
			if err != nil {
				return err
			}
			opts.oneRun = cmd.Flags().Changed("run")
			return a.streams.Following(cmd.Context(), func(ctx context.Context) error { return a.logs(ctx, conf, opts, args[0]) })
		},
	}
	cmd.Flags().BoolVarP(&opts.follow, "follow", "f", false, "follow the log until the operation ends")
	cmd.Flags().Int64Var(&opts.offset, "offset", 0, "begin at this byte of the log")
	cmd.Flags().StringVar(&opts.step, "step", "", "only what this step wrote in its last run")
	_ = cmd.RegisterFlagCompletionFunc("step", a.completeStep) // the flag exists
	cmd.Flags().IntVar(&opts.run, "run", 0, "with --step: what it wrote in this run, by its number")
	jsonFlag(cmd, &opts.json)
	return cmd
}

func (a *app) logs(ctx context.Context, conf *config.Loaded, opts logsOptions, text string) error {
	if opts.offset < 0 {
		return exit.Usagef("flag --offset: %d is below zero", opts.offset)
	}
	if opts.step != "" && (opts.follow || opts.offset > 0) {
		return exit.Usagef("--step goes with neither --follow nor --offset")
	}
	if opts.oneRun && opts.step == "" {
		return exit.Usagef("--run is the number of a run of a step, and goes with --step")
	}
	if opts.oneRun && opts.run < 1 {
		return exit.Usagef("--run: %d is not the number of a run, the first is 1; leave it out for the last one", opts.run)
	}
	out := a.logOutput(opts)
	err := a.reach(ctx, conf, func(c *client.Client) error {
		id, err := resolveRemote(ctx, c).one(text)
		if err != nil {
			return err
		}
		if opts.step != "" {
			log, err := c.StepOutput(ctx, id, opts.step, opts.run)
			if err != nil {
				return err
			}
			defer log.Close()
			a.noticeRun(opts.step, log.Run, log.Runs)
			return copyLog(out, log)
		}
		if opts.follow {
			footer, err := c.Follow(ctx, id, opts.offset, out)
			if err != nil {
				return explainCut(err)
			}
			a.streams.Notice("%s", summary(id, footer))
			return nil
		}
		log, err := c.Log(ctx, id, opts.offset)
		if err != nil {
			return err
		}
		defer log.Close()
		return copyLog(out, log)
	}, func(tree *statefs.Tree) error {
		id, err := resolveLocal(tree).one(text)
		if err != nil {
			return err
		}
		if opts.step != "" {
			return a.localStepLog(tree, id, opts.step, opts.run, out)
		}
		return localLog(tree, opts, id, out)
	})
	return errors.Join(err, out.end())
}

// localLog writes the log of an operation from the directory.
func localLog(tree *statefs.Tree, opts logsOptions, id statefs.ID, out io.Writer) error {
	if _, err := statefs.ReadSubmitted(tree, id); errors.Is(err, fs.ErrNotExist) {
		return exit.NotFoundf("operation %s not found in %s", id, tree.Dir())
	}
	log, err := tree.OpenLog(id)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		defer log.Close()
		if _, err := log.Seek(opts.offset, io.SeekStart); err != nil {
			return fmt.Errorf("read the log of %s: %w", id, err)
		}
		if err := copyLog(out, log); err != nil {
			return err
		}
	}
	if _, err := tree.State(id); opts.follow && err == nil {
		return &client.UnreachableError{
			Address: tree.Dir(),
			Err:     errors.New("the operation has not ended, and nothing is added to its log until one is started with 'jobdir serve'"),
		}
	}
	return nil
}

// localStepLog writes the output of a step from the directory.
func (a *app) localStepLog(tree *statefs.Tree, id statefs.ID, name string, run int, out io.Writer) error {
	rec, err := statefs.ReadSubmitted(tree, id)
	if errors.Is(err, fs.ErrNotExist) {
		return exit.NotFoundf("operation %s not found in %s", id, tree.Dir())
	}
	if err != nil {
		return err
	}
	step := steps.Find(rec.Steps, name)
	if step == nil {
		return exit.NotFoundf("operation %s has no step %q", id, name)
	}
	if _, _, is := step.OutputOf(run, 0); !is {
		return exit.NotFoundf("step %s of operation %s has no run %d: %s", name, id, run, steps.DescribeRuns(step.Runs()))
	}
	a.noticeRun(name, cmp.Or(run, step.Run), step.Runs())
	log, err := tree.OpenStepLog(id, step)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return fmt.Errorf("read the output of step %s of %s: %w", name, id, err)
	}
	from, to, _ := step.OutputOf(run, info.Size())
	return copyLog(out, io.NewSectionReader(log, from, to-from))
}

// noticeRun prints which run of a step follows, if there are several.
func (a *app) noticeRun(name string, run int, runs []int) {
	if len(runs) > 1 {
		a.streams.Notice("run %d of step %s; %s", run, name, steps.DescribeRuns(runs))
	}
}

func copyLog(out io.Writer, from io.Reader) error {
	if _, err := io.Copy(out, from); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	return nil
}
