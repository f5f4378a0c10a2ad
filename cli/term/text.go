package term

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jobdir/jobdir/statefs"
)

// Day is the unit that time.Duration has no name for.
const Day = 24 * time.Hour

// Printable replaces what a terminal could not show by question marks, so that output of work cannot control it.
func Printable(text string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, text)
}

// Time formats a time for people.
func Time(at time.Time) string { return at.Local().Format(time.DateTime) }

// Shortly formats a duration with two units at most.
func Shortly(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < Day:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d/Day), int(d.Hours())%24)
}

// Progress formats the progress of work. For an operation with steps it is the number of finished steps,
// the progress of the running step, and the percentage of the whole.
func Progress(p *statefs.Progress) string {
	shown := cmp.Or(progressCount(p.Done, p.Total, p.Phase), "0")
	if p.Step == nil {
		return shown
	}
	shown += ", " + strings.TrimSpace(p.Step.Name+" "+progressCount(p.Step.Done, p.Step.Total, p.Step.Phase))
	if fraction, known := p.Fraction(); known {
		shown += fmt.Sprintf(" (%d%%)", int(fraction*100))
	}
	return shown
}

func progressCount(done int64, total *int64, phase string) string {
	shown := strconv.FormatInt(done, 10)
	switch {
	case total != nil:
		shown = fmt.Sprintf("%d/%d", done, *total)
	case done == 0 && phase == "":
		return ""
	}
	return strings.TrimSpace(shown + " " + phase)
}

// Plural formats a count with its noun.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
