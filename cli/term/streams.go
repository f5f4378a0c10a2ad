// Package term is what all commands print with: streams, tables, and texts for people.
package term

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/cli/exit"
)

// The rules of output:
//
//   - stdout is data: only what the user requested, so that it can be piped. With --json it is JSON.
//   - stderr is for messages: progress, hints, errors. A line of the program itself begins with "jobdir: ".
//   - An error is one line: the action, its object, the cause, and what a person can do.
//   - Nothing is redrawn, and only the steps of show are coloured. Colours appear only on a terminal
//     and not with NO_COLOR. Otherwise output is the same on a terminal, in a pipe and in a file.
//   - A question is asked only when stdin and stderr are terminals.
//   - A secret is never printed.

// Streams are where a command reads from and writes to.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// Notice writes one message line to stderr.
func (s Streams) Notice(format string, args ...any) {
	// A write error on stderr cannot be reported.
	_, _ = fmt.Fprintf(s.Err, "jobdir: "+format+"\n", args...)
}

// PrintError prints an error; each of several joined errors gets its own line. It skips an error of package exit whose
// message is already printed.
func (s Streams) PrintError(err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			s.PrintError(one)
		}
		return
	}
	if _, said := errors.AsType[*exit.CodeError](err); !said {
		s.Notice("%v", err)
	}
}

// JSON writes a value as indented JSON.
func (s Streams) JSON(value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return s.Line("%s", data)
}

// Line writes one line of data.
func (s Streams) Line(format string, args ...any) error {
	if _, err := fmt.Fprintf(s.Out, format+"\n", args...); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// Table writes rows in columns under a head.
func (s Streams) Table(head []string, rows [][]string) error {
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		if _, err := fmt.Fprintln(w, strings.Join(row, "\t")); err != nil {
			return fmt.Errorf("write the output: %w", err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// Interactive reports whether the program can ask a person.
func (s Streams) Interactive() bool {
	return IsTerminal(s.In) && IsTerminal(s.Err)
}

// IsTerminal reports whether a stream is a terminal; see tcgetattr(3).
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Confirm asks a question to which only y or yes means yes.
func (s Streams) Confirm(question string) bool {
	_, _ = fmt.Fprint(s.Err, "jobdir: "+question) // a write error on stderr cannot be reported
	line, err := bufio.NewReader(s.In).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return err == nil && (answer == "y" || answer == "yes")
}
