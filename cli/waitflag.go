package cli

import (
	"errors"
	"net/http"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/daemon/acts"
	"github.com/jobdir/jobdir/statefs"
)

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
		return &exit.NoEffectError{Err: err}
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
