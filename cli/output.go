package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// The rules of output:
//
//   - stdout is data: what was asked for and nothing else, so that it can be piped. With --json it is JSON.
//   - stderr is talk: what happens, what to do next, errors. A line of the program itself begins with "jobdir: ".
//   - An error is one line that says what was tried, on what, why it did not work, and what a person can do.
//   - Nothing is redrawn, and but for the steps of show nothing is coloured: output is the same on a terminal, in a pipe and in a file. Colours
//     are on a terminal alone, and not with NO_COLOR.
//   - A question is asked only when stdin and stderr are terminals.
//   - A secret is never printed.

// Streams are where a command reads from and writes to.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// say writes one line of talk.
func (s Streams) say(format string, args ...any) {
	// Nobody is left to be told that stderr is gone.
	_, _ = fmt.Fprintf(s.Err, "jobdir: "+format+"\n", args...)
}

// complain says an error, each of several on its own line. A codeError has been said already.
func (s Streams) complain(err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			s.complain(one)
		}
		return
	}
	if _, said := errors.AsType[*codeError](err); !said {
		s.say("%v", err)
	}
}

// json writes a value as indented JSON.
func (s Streams) json(value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return s.line("%s", data)
}

// line writes one line of data.
func (s Streams) line(format string, args ...any) error {
	if _, err := fmt.Fprintf(s.Out, format+"\n", args...); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// table writes rows in columns under a head.
func (s Streams) table(head []string, rows [][]string) error {
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

// interactive reports whether a person can be asked.
func (s Streams) interactive() bool {
	return isTerminal(s.In) && isTerminal(s.Err)
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && terminal(f)
}

// plural counts things in words.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
