package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/cli/backend"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/daemon/acts"
	"github.com/jobdir/jobdir/statefs"
)

type waitOptions struct {
	timeout time.Duration
	until   string
}

func (a *app) waitCommand() *cobra.Command {
	var opts waitOptions
	cmd := &cobra.Command{
		Use:   "wait ID...",
		Short: "Wait until operations have ended, and exit with their outcome",
		Long: `wait prints one line for each operation when it ends. The exit code is the outcome: 0 success, 1 failure, 2
partial, 130 cancelled, 3 when it waits for a person, or comes after an operation that does; of several, the code of the worst:
failure, a person, cancelled, partial, success. 75 means that the outcome is not known yet: the time was over, or the
wait was interrupted.

With --for running it returns as soon as they run, with 0. An operation that has ended before counts by its outcome.

An ID may be shortened to its end, such as r42 or 42, or to a beginning that only one live operation has.`,
		Example:           "  jobdir wait r42 --timeout 1h\n  jobdir wait --for running r42",
		Args:              needs("an ID"),
		ValidArgsFunction: a.completeIDs(0),
		RunE:              a.follows(opts.wait),
	}
	cmd.Flags().StringVar(&opts.until, "for", forEnd, "what to wait for: end or running")
	// the flag exists
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{forEnd, forRunning},
		cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().DurationVar(&opts.timeout, "timeout", 0, "give up after this time (default: never)")
	jsonFlag(cmd)
	return cmd
}

// The conditions to wait for.
const (
	forEnd     = "end"
	forRunning = string(statefs.Running)
)

// waitResult is how one operation ended.
type waitResult struct {
	ID statefs.ID `json:"id"`
	// State is set for an operation that waits for a person or, with --for running, runs; Footer for a
	// finished one.
	State  statefs.State   `json:"state,omitempty"`
	Error  *statefs.Fault  `json:"error,omitempty"`
	Footer json.RawMessage `json:"footer"`

	result statefs.Result
	line   string
	err    error
}

var errStopped = errors.New("stopped waiting; the operations continue")

func (opts *waitOptions) wait(ctx context.Context, s *session, texts []string) error {
	if opts.until != forEnd && opts.until != forRunning {
		return exit.Usagef("--for %q: it is %s or %s", opts.until, forEnd, forRunning)
	}
	ctx, stop := interruptible(ctx, "timeout", opts.timeout)
	defer stop()
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	ids, err := backend.Remote(c).IDs(ctx, texts)
	if err != nil {
		return err
	}
	return waitFor(ctx, s, c, opts.until, ids)
}

// waitFor waits for operations, prints the result of each, and returns the combined outcome.
func waitFor(ctx context.Context, s *session, c *client.Client, until string, ids []statefs.ID) error {
	wait := c.WaitSettled
	if until == forRunning {
		wait = c.WaitRunning
	}
	ended := make(chan waitResult)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for _, id := range ids {
		waiting.Go(func() { ended <- waitResultOf(wait(ctx, id)) })
	}
	var all []waitResult
	var failed []error
	for range ids {
		e := <-ended
		switch {
		case e.err != nil:
			failed = append(failed, e.err)
			continue
		case !s.json:
			failed = append(failed, s.streams.Line("%s", e.line))
		}
		all = append(all, e)
	}
	if s.json {
		failed = append(failed, s.streams.JSON(append([]waitResult{}, all...)))
	}
	if cause := context.Cause(ctx); errors.Is(cause, exit.ErrReaderGone) {
		return cause
	} else if cause != nil {
		s.streams.Notice("%v", cause)
		return exit.With(exit.Temporary)
	}
	if err := errors.Join(failed...); err != nil {
		return explainCut(err)
	}
	return worst(all)
}

// waitResultOf returns the result of waiting for an operation.
func waitResultOf(op *client.Operation, err error) waitResult {
	if err != nil {
		return waitResult{err: err}
	}
	if op.WaitsForPerson() {
		return waitResult{ID: op.ID, State: op.State, Error: op.Error, line: personLine(op)}
	}
	if !op.Ended() {
		return waitResult{ID: op.ID, State: op.State, line: op.ID.String() + ": " + string(op.State)}
	}
	footer, err := client.ParseFooter(op.Footer)
	if err != nil {
		return waitResult{ID: op.ID, err: err}
	}
	return waitResult{ID: op.ID, Footer: op.Footer, result: footer.Result, line: summary(op.ID, footer)}
}

// personLine explains why an operation waits for a person, and which commands help.
func personLine(op *client.Operation) string {
	if w := op.Waiting; w != nil && !w.NeedsPerson.IsZero() {
		return fmt.Sprintf("%s comes after %s, which waits for a person: 'jobdir show %s' has the reason, 'jobdir retry %s' continues it, 'jobdir cancel %s' ends it",
			op.ID, w.NeedsPerson, w.NeedsPerson, w.NeedsPerson, w.NeedsPerson)
	}
	a := op.Attention
	if a == nil { // an older daemon
		a = statefs.AttentionOf(op.ID, op.State, &statefs.Record{Reason: op.Reason, Error: op.Error})
	}
	return op.ID.String() + " " + a.Sentence(op.ID)
}

// worst returns the worst outcome of several operations as the exit code.
func worst(all []waitResult) error {
	if !slices.ContainsFunc(all, func(e waitResult) bool { return e.result == statefs.Failure }) &&
		slices.ContainsFunc(all, func(e waitResult) bool { return e.State != "" && e.State != statefs.Running }) {
		return exit.With(exit.Person)
	}
	for _, result := range []statefs.Result{statefs.Failure, statefs.CancelledResult, statefs.Partial} {
		if slices.ContainsFunc(all, func(e waitResult) bool { return e.result == result }) {
			return exit.With(exit.Outcome(result))
		}
	}
	return nil
}

// interruptible returns a context that a signal ends or, if positive, the timeout of a flag. Its cause tells
// which.
func interruptible(ctx context.Context, flag string, timeout time.Duration) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	caught, release := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(caught, func() { cancel(errStopped) })
	if timeout > 0 {
		over := fmt.Errorf("the time of --%s is over; the operations continue", flag)
		timer := time.AfterFunc(timeout, func() { cancel(over) })
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	return ctx, func() { cancel(nil); release() }
}

// waitForever is the value of --wait without a duration.
const waitForever = "forever"

// waitFlag is the flag --wait, with the same syntax for every command: alone it waits without limit, with a
// duration at most that long. The zero value means that the flag is not given.
type waitFlag struct {
	given bool
	limit time.Duration // 0: none
}

// String implements pflag.Value.
func (w *waitFlag) String() string {
	switch {
	case w.given && w.limit == 0:
		return waitForever
	case w.given:
		return w.limit.String()
	}
	return ""
}

// Type implements pflag.Value: the name of the value in the help.
func (w *waitFlag) Type() string { return "duration" }

// Set implements pflag.Value. A duration of 0 means not to wait.
func (w *waitFlag) Set(text string) error {
	if text == waitForever {
		*w = waitFlag{given: true}
		return nil
	}
	limit, ok := param.ParseDuration(text)
	if !ok {
		var err error
		if limit, err = time.ParseDuration(text); err != nil || limit < 0 {
			return errors.New("not a time")
		}
	}
	*w = waitFlag{given: limit > 0, limit: limit}
	return nil
}

// atMost returns how long to wait: the given duration, or the longest wait of a daemon; 0 without the flag.
func (w *waitFlag) atMost() time.Duration {
	if w.given && w.limit == 0 {
		return maxAnswerWait
	}
	return w.limit
}

// noEffect changes the exit code of a refused request to that of a request without effect, if the command
// waits for the effect.
func (w *waitFlag) noEffect(err error) error {
	refused, remote := errors.AsType[*client.Error](err)
	useless, local := errors.AsType[*acts.RefusedError](err)
	if w.given && (remote && refused.Status == http.StatusConflict || local && useless.Member == "" ||
		endedState(err).Terminal()) {
		return exit.NoEffect(err)
	}
	return err
}

// endedState returns how an operation ended, if err refuses a request because of that end, and "" otherwise.
func endedState(err error) statefs.State {
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status == http.StatusNotFound {
		return refused.State
	}
	if ended, ok := errors.AsType[*statefs.EndedError](err); ok {
		return ended.State
	}
	return ""
}

// maxAnswerWait is the longest time that a daemon takes to answer a request.
const maxAnswerWait = 10 * time.Minute

// addWait adds the flag to a command. until names the condition in the help text.
func addWait(cmd *cobra.Command, w *waitFlag, until string) {
	cmd.Flags().Var(w, "wait", "return when "+until+"; with a time, as --wait=30s, at most after that")
	cmd.Flags().Lookup("wait").NoOptDefVal = waitForever
}

// durationPattern matches a word that may follow --wait. No ID, and no beginning or end that a person would
// type, matches it.
var durationPattern = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h|d))+$`)

// joinWait joins --wait and a duration after it into one word, because a flag with an optional value does not
// take the next word.
func joinWait(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--":
			return append(out, args[i:]...)
		case args[i] == "--wait" && i+1 < len(args) && durationPattern.MatchString(args[i+1]):
			out = append(out, args[i]+"="+args[i+1])
			i++
		default:
			out = append(out, args[i])
		}
	}
	return out
}
