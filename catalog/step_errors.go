package catalog

import (
	"regexp"
	"slices"
)

// ErrorPattern assigns a class and an error code to a failure whose output or error has a matching line.
type ErrorPattern struct {
	Match *regexp.Regexp
	// Class is what is done, "" leaves it to the exit code.
	Class Class
	// Code is the error code, "" leaves it as it is.
	Code string
}

// ErrorIn finds the first pattern that one of the lines matches, and that line; the last such line counts. It is nil
// when none does.
func (s *Step) ErrorIn(lines []string) (*ErrorPattern, string) {
	for i := range s.Errors {
		for _, line := range slices.Backward(lines) {
			if s.Errors[i].Match.MatchString(line) {
				return &s.Errors[i], line
			}
		}
	}
	return nil, ""
}
