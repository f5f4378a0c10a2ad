package yamlfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Position is a place in a definition file. Line and Column count from 1, the
// column in characters.
type Position struct {
	File   string `json:"file"`
	Line   int    `json:"line"` // 0 when the file as a whole is meant: it cannot be read, it is too large
	Column int    `json:"column"`
}

// String gives "file:line:column", or the file alone.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Problem describes what is wrong there.
func (p Position) Problem(hint, format string, args ...any) *Problem {
	return &Problem{Position: p, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Problem is one thing that is wrong with a definition file, for a person who
// has the file open in an editor.
type Problem struct {
	Position
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Error prints the problem as
//
//	jobs/media.yaml:12:5: unknown key "max_lgo" (did you mean "max_log"?)
func (p *Problem) Error() string {
	text := p.String() + ": " + p.Message
	if p.Hint != "" {
		text += " (" + p.Hint + ")"
	}
	return text
}

// Problems are the problems of one or more files, in the order of the text. It
// is the error that [Parse] and [Catalog.Reload] return.
type Problems []*Problem

// Error prints one problem per line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find a single [*Problem].
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// Err keeps an empty list from becoming an error that is not nil.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// Sort puts the problems in the order in which a person goes through the files.
func (ps Problems) Sort() {
	slices.SortStableFunc(ps, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
