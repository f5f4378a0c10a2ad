package work

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/stream"
)

// lastLineLimit limits the command's last line in an error message, in bytes.
const lastLineLimit = 500

// errorTail is how much of the last output of a run is searched for its last line and for error
// patterns.
const errorTail = 64 << 10

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

// LastLine returns the last non-empty line of the run's command, "" if there is none.
func (t *task) LastLine() string {
	if t.def.Work() != catalog.WorkRun {
		return ""
	}
	return lastText(t.LastLines(), runBegins)
}

// LastLine returns the last non-empty line that the command of a run wrote to a log, "" if there is
// none. The output of the run begins at from.
func (h *Host) LastLine(id statefs.ID, path string, from int64) string {
	return lastText(lastLines(h.Logger, id, path, from), runBegins)
}

// LastLines returns the last lines that the run wrote to its log.
func (t *task) LastLines() []string {
	return lastLines(t.host.Logger, t.id, t.LogPath(), t.step.from)
}

// lastLines returns the last lines of a log that begins at from, nil if there is no log.
func lastLines(logger *slog.Logger, id statefs.ID, path string, from int64) []string {
	data, _, err := files.ReadEnd(path, from, errorTail)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		logger.Warn("the output of a failed command cannot be read", "id", id, "log", path, "error", err)
	}
	var lines []string
	for line := range bytes.Lines(data) {
		lines = append(lines, string(bytes.TrimRight(line, "\r\n")))
	}
	return lines
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
