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

// maxErrors bounds the patterns of a step: each is held against the last lines of a failure.
const maxErrors = 64

// readErrors decodes the patterns of failures.
func readErrors(s *stepDecoder, n *node, key string) {
	elements := s.list(n, key)
	if len(elements) > maxErrors {
		s.fail(n, "", "a step has more than %d errors", maxErrors)
		return
	}
	for _, e := range elements {
		var p ErrorPattern
		before := len(s.problems)
		at := map[string]*node{}
		if !s.mapping(e, errorKeys.set("an error", 0, ""), func(key string, k, n *node) {
			at[key] = k
			switch key {
			case "match":
				p.Match = s.expression(n, key)
			case "class":
				word, _ := s.word(n, key, exitCodesKeys.set("", 0, "").known)
				p.Class = Class(word)
			case "code":
				p.Code = s.errorCode(n)
			}
		}) {
			continue
		}
		switch {
		case len(s.problems) > before: // it may be there, misspelt
		case at["match"] == nil:
			s.fail(e, `write {match: "...", class: retryable}`, "the error has no match")
		case at["class"] == nil && at["code"] == nil:
			s.fail(e, "add class, code or both", "the error has neither class nor code")
		}
		s.step.Errors = append(s.step.Errors, p)
	}
}

// expression reads an RE2 expression, nil when it is none.
func (d *decoder) expression(n *node, what string) *regexp.Regexp {
	text, ok := d.text(n, what)
	if !ok {
		return nil
	}
	if text == "" || len(text) > maxPattern {
		d.fail(n, "", "%s must have 1 to %d characters", what, maxPattern)
		return nil
	}
	expression, err := regexp.Compile(text)
	if err != nil {
		d.fail(n, "see https://golang.org/s/re2syntax", "%s: %s", what, err)
	}
	return expression
}

func (d *decoder) errorCode(n *node) string {
	text, ok := d.text(n, "code")
	switch {
	case !ok:
	case slices.Contains(finalCodes, text):
		d.fail(n, "the daemon ends operations with it", "code cannot be %q", text)
	case !errorCode.MatchString(text):
		d.fail(n, "small letters, digits and _, a letter first, 63 characters at most", "code cannot be %q", clip(text))
	}
	return text
}
