package daemon

import (
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
	"github.com/jobdir/jobdir/stream"
)

// lastLineLimit limits the command's last line in an error message, and nameLimit the name of an
// item, in bytes.
const (
	lastLineLimit = 500
	nameLimit     = 200
)

// maxFailuresKept is how many failed attempts a record keeps; older ones are dropped.
const maxFailuresKept = 10

// unexplainedCodes are the error codes that describe how a command ended but not why.
var unexplainedCodes = map[string]bool{
	"exit_code": true, "signal": true, "lost": true, "keeper_died": true, "timeout": true, "stalled": true,
	"deadline_exceeded": true,
}

var (
	// runBegins and itemBegins match the line that the daemon writes before the output of a run or
	// an item.
	runBegins  = regexp.MustCompile(`^  Run [0-9]+ begins\.$`)
	itemBegins = regexp.MustCompile(`^\[ [0-9]+ / [0-9]+ \] Processing '`)
	// ownLine matches the other lines that the daemon may write into a log while a command runs.
	ownLine = regexp.MustCompile(`^== step [0-9]+ / [0-9]+ |^  (` +
		`(` + requestTitles() + `) (requested|refused)\b.*[.]$|` +
		`(Retry of|Back to) step .* requested|Step .* is (skipped|approved|rejected)|(Params|Steps)\..* set\b.*[.]$|` +
		`Goes on after [0-9]+ finished |Optional step .* failed: |'.*' is no regular file)`)
	// escapes matches terminal escape sequences: cursor movements, colours, window titles.
	escapes = regexp.MustCompile("\x1b(\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(\x07|\x1b\\\\)?)")
)

// requestTitles matches the first words of the lines about requests.
func requestTitles() string {
	var titles []string
	for _, ask := range statefs.Actions() {
		titles = append(titles, ask.Title())
	}
	return strings.Join(titles, "|")
}

// lastLine returns the last non-empty line of the run's command, "" if there is none.
func (r *run) lastLine() string {
	if r.def.Work() != catalog.WorkRun {
		return ""
	}
	return lastText(r.lastLines(), runBegins)
}

// cutOffMessage returns the error message of work that was cut off before this daemon began: text,
// and the last non-empty line of the command if there is one. at is its step, nil for none.
func cutOffMessage(owner *statefs.Owner, logger *slog.Logger, id statefs.ID, def *catalog.Definition, at *steps.Step,
	text string,
) string {
	if def == nil || def.Work() != catalog.WorkRun {
		return text
	}
	path, from := owner.LogPath(id), int64(0)
	if at != nil {
		from = at.LogFrom
		if at.Log != "" {
			path = owner.StepLogPath(id, at.Name)
		}
	}
	return withLine(text, lastText(lastLines(logger, id, path, from), runBegins))
}

// withLine appends the last line of a command to an error message.
func withLine(message, line string) string {
	if line == "" {
		return message
	}
	return message + ": " + line
}

// itemLastLine returns the last non-empty line of the command of a failed item.
func (r *run) itemLastLine(output *itemOutput) string {
	if output.outputs != nil {
		return lastText(strings.Split(output.text(), "\n"), nil)
	}
	return lastText(r.lastLines(), itemBegins)
}

// lastText returns the last non-empty line that the daemon did not write, made printable. It stops
// at a line that matches begins. If carriage returns overwrote parts of the line, it returns the
// last non-empty part.
func lastText(lines []string, begins *regexp.Regexp) string {
	for _, line := range slices.Backward(lines) {
		if begins != nil && begins.MatchString(line) {
			return ""
		}
		if ownLine.MatchString(line) {
			continue
		}
		for _, part := range slices.Backward(strings.Split(line, "\r")) {
			if text := withoutEscapes(part); text != "" {
				return truncate(text, lastLineLimit)
			}
		}
	}
	return ""
}

// withoutEscapes returns a line without escape sequences and control characters.
func withoutEscapes(line string) string {
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		switch {
		case c == '\t':
			return ' '
		case stream.Unprintable(c):
			return -1
		}
		return c
	}, strings.ToValidUTF8(escapes.ReplaceAllString(line, ""), "\uFFFD")))
}

// truncate returns text cut to at most limit bytes. A cut ends after a whole character and is
// marked with an ellipsis.
func truncate(text string, limit int) string {
	const ellipsis = "…"
	if len(text) <= limit {
		return text
	}
	end := limit - len(ellipsis)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}

// addLastLine records a failed attempt, and appends the command's last line to its error unless an
// error pattern of the job has already chosen a line. before is the error before the patterns were
// applied.
func (r *run) addLastLine(rec *statefs.Record, failed, before *statefs.Fault, line string) *statefs.Fault {
	if unexplainedCodes[before.Code] && failed.Message == before.Message {
		failed = &statefs.Fault{Code: failed.Code, Message: withLine(failed.Message, line)}
	}
	addFailedAttempt(rec, statefs.FailedAttempt{
		Run: r.number, Step: r.step.name(), Code: failed.Code,
		Message: failed.Message, At: r.owner.Now(),
	})
	return failed
}

// addFailedAttempt appends a failed attempt to the record, which keeps the last maxFailuresKept.
func addFailedAttempt(rec *statefs.Record, failed statefs.FailedAttempt) {
	failures := append(slices.Clone(rec.FailedAttempts), failed)
	rec.FailedAttempts = failures[max(len(failures)-maxFailuresKept, 0):]
}

// itemsError returns the error of a run with failed items. It includes the error of the item that
// failed last in this run.
func (r *report) itemsError(count string) error {
	if r.lastFailed == nil {
		return &workError{"items_failed", fmt.Errorf("%s items failed", count)}
	}
	return &workError{"items_failed", fmt.Errorf("%s items failed; the last one, '%s': %w",
		count, stream.Printable(truncate(r.lastName, nameLimit)), r.lastFailed)}
}
