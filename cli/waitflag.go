package cli

import (
	"errors"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobdir/jobdir/catalog"
)

// asLongAsItTakes is the value of --wait when none is given.
const asLongAsItTakes = "forever"

// waitFlag is the flag --wait, which every command that has it reads in the same way: alone it waits as long as it takes, with a time at most so long. The
// zero value is not given.
type waitFlag struct {
	given bool
	limit time.Duration // 0: none
}

// String is of pflag.Value.
func (w *waitFlag) String() string {
	switch {
	case w.given && w.limit == 0:
		return asLongAsItTakes
	case w.given:
		return w.limit.String()
	}
	return ""
}

// Type is of pflag.Value: what messages and the help say it takes.
func (w *waitFlag) Type() string { return "duration" }

// Set is of pflag.Value. No time at all is not to wait.
func (w *waitFlag) Set(text string) error {
	if text == asLongAsItTakes {
		*w = waitFlag{given: true}
		return nil
	}
	limit, ok := catalog.ParseDuration(text)
	if !ok {
		var err error
		if limit, err = time.ParseDuration(text); err != nil || limit < 0 {
			return errors.New("not a time")
		}
	}
	*w = waitFlag{given: limit > 0, limit: limit}
	return nil
}

// atMost is how long to wait: the time that was given, and otherwise the longest that a daemon waits; 0 when nobody waits.
func (w *waitFlag) atMost() time.Duration {
	if w.given && w.limit == 0 {
		return longestAnswer
	}
	return w.limit
}

// longestAnswer is the longest time that a daemon takes for an answer.
const longestAnswer = 10 * time.Minute

// addWait gives a command the flag. until says what it waits for.
func addWait(cmd *cobra.Command, w *waitFlag, until string) {
	cmd.Flags().Var(w, "wait", "return when "+until+"; with a time, as --wait=30s, at most after that")
	cmd.Flags().Lookup("wait").NoOptDefVal = asLongAsItTakes
}

// aTime is what may follow --wait as a word of its own. No ID, and no beginning or end of one that anybody would type, is like it.
var aTime = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h|d))+$`)

// joinWait makes one word of --wait and a time behind it: a flag whose value may be left out does not take the next word.
func joinWait(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--":
			return append(out, args[i:]...)
		case args[i] == "--wait" && i+1 < len(args) && aTime.MatchString(args[i+1]):
			out = append(out, args[i]+"="+args[i+1])
			i++
		default:
			out = append(out, args[i])
		}
	}
	return out
}
