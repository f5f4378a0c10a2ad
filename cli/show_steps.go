package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/cli/backend"
	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// outputLines is how many of the last lines of a failed step are shown, outputBytes how much is read to find
// them.
const (
	outputLines = 10
	outputBytes = 16 << 10
)

// stepsView is the view of the steps of an operation.
type stepsView struct {
	steps     []steps.View
	acts      []steps.ActionRecord
	attention *statefs.Attention
	// output are the last lines of the step named failed.
	failed string
	output []string
	colour bool
}

// The colours are those of ECMA-48 that every terminal supports.
var stepMarks = map[steps.Status]struct{ mark, colour string }{
	steps.Pending: {"○", "2"}, steps.Running: {"▶", "36"}, steps.Succeeded: {"✓", "32"},
	steps.FailedRetryable: {"✗", "33"},
	steps.FailedManual:    {"✗", "31"}, steps.Skipped: {"→", "33"},
}

// coloured reports whether out is a terminal and NO_COLOR is not set (no-color.org).
func coloured(out any) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(out)
}

// lines renders the view. Control characters in texts of the work are escaped.
func (v *stepsView) lines() []string {
	var plain []steps.Step
	names, statuses := 0, 0
	for i := range v.steps {
		plain = append(plain, v.steps[i].Step)
		names, statuses = max(names, len(v.steps[i].Name)), max(statuses, len(v.steps[i].Status))
	}
	done, all := steps.Progress(plain)
	out := []string{fmt.Sprintf("%-11s %d of %d done", "steps", done, all)}
	for i := range v.steps {
		s := &v.steps[i]
		took := "-"
		if s.Seconds != nil {
			took = term.Shortly(time.Duration(*s.Seconds * float64(time.Second)))
		}
		status := fmt.Sprintf("%s %*d %-*s  %-*s", stepMarks[s.Status].mark, len(strconv.Itoa(len(v.steps))), s.Number, names,
			term.Printable(s.Name), statuses, s.Status)
		if v.colour {
			status = "\x1b[" + stepMarks[s.Status].colour + "m" + status + "\x1b[0m"
		}
		out = append(out, strings.TrimRight(fmt.Sprintf("  %s  %7s  %s", status, took,
			term.Printable(strings.Join(v.notes(s), "; "))), " "))
	}
	if len(v.output) > 0 {
		out = append(out, fmt.Sprintf("%-11s the last lines of step %s:", "output", term.Printable(v.failed)))
		for _, line := range v.output {
			out = append(out, "  | "+term.Printable(strings.ReplaceAll(line, "\t", "    ")))
		}
	}
	if v.attention != nil {
		for i, command := range v.attention.Commands {
			title := ""
			if i == 0 {
				title = "helps"
			}
			out = append(out, fmt.Sprintf("%-11s %s", title, command))
		}
	}
	return out
}

// notes returns what is shown of a step besides its status.
func (v *stepsView) notes(s *steps.View) (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if s.Optional {
		add("optional")
	}
	if len(s.Needs) > 0 {
		add("needs %s", strings.Join(s.Needs, ", "))
	}
	switch {
	case s.ApprovedAt != nil:
		add("approved%s at %s", byWhom(s.ApprovedBy), shownTime(s.ApprovedAt))
	case s.Approve && !s.Status.Done():
		add("needs approval")
	}
	if s.Retries > 0 {
		add("%s", term.Plural(s.Retries, "retry", "retries"))
	}
	if s.Status == steps.Skipped {
		text := "skipped"
		for _, a := range v.acts {
			if a.Action == string(statefs.Skip) && a.Step == s.Name {
				text = "skipped" + byWhom(a.By)
			}
		}
		if s.Reason != "" && s.Reason != text {
			text += ": " + s.Reason
		}
		notes = append(notes, text)
	}
	if s.ErrorMessage != "" && s.Status != steps.Succeeded && s.Status != steps.Skipped {
		add("%s", strings.TrimPrefix(s.ErrorCode+": "+s.ErrorMessage, ": "))
	}
	return notes
}

func byWhom(name string) string {
	if name == "" {
		return ""
	}
	return " by " + name
}

// failedStep returns the step whose output explains the failure: the current step of the operation, or else
// an optional step that failed.
func failedStep(list []steps.View) *steps.View {
	var aside *steps.View
	for i := range list {
		s := &list[i]
		switch {
		case s.Status != steps.FailedManual && s.Status != steps.FailedRetryable:
		case !s.Optional:
			return s
		case aside == nil:
			aside = s
		}
	}
	return aside
}

// lastOutput returns the last lines of a step; none if they cannot be read.
func lastOutput(ctx context.Context, b *backend.Backend, id statefs.ID, step string) []string {
	log, err := b.StepLog(ctx, id, step, outputBytes)
	if err != nil {
		return nil
	}
	defer log.Close()
	data, err := io.ReadAll(io.LimitReader(log, outputBytes))
	if err != nil {
		return nil // the output is optional
	}
	data = bytes.TrimRight(data, "\n")
	if len(data) == 0 {
		return nil
	}
	lines := strings.Split(string(data), "\n")
	return lines[max(0, len(lines)-outputLines):]
}

// actionLine describes the action of a person.
func actionLine(a *steps.ActionRecord) string {
	words := []string{shownTime(&a.At) + " ", a.Action}
	if a.Step != "" {
		words = append(words, a.Step)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Values)) {
		words = append(words, fmt.Sprintf("%s=%s", name, a.Values[name]))
	}
	line := strings.Join(words, " ") + byWhom(a.By)
	if a.Reason != "" {
		line += ": " + a.Reason
	}
	return line
}
