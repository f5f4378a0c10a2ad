package catalog

import (
	"regexp"
	"slices"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
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
func readErrors(s *jobDecoder, n *yamlfile.Node, key string) {
	elements := s.List(n, key)
	if len(elements) > maxErrors {
		s.Fail(n, "", "a step has more than %d errors", maxErrors)
		return
	}
	for _, e := range elements {
		var p ErrorPattern
		before := len(s.Problems)
		at := map[string]*yamlfile.Node{}
		if !s.Mapping(e, errorKeys.set("an error", 0, ""), func(key string, k, n *yamlfile.Node) {
			at[key] = k
			switch key {
			case "match":
				p.Match = s.expression(n, key)
			case "class":
				word, _ := s.Word(n, key, exitCodesKeys.set("", 0, "").Known)
				p.Class = Class(word)
			case "code":
				p.Code = s.errorCode(n)
			}
		}) {
			continue
		}
		switch {
		case len(s.Problems) > before: // it may be there, misspelt
		case at["match"] == nil:
			s.Fail(e, `write {match: "...", class: retryable}`, "the error has no match")
		case at["class"] == nil && at["code"] == nil:
			s.Fail(e, "add class, code or both", "the error has neither class nor code")
		}
		s.step.Errors = append(s.step.Errors, p)
	}
}

const expressionHint = "see https://golang.org/s/re2syntax"

// expression reads an RE2 expression, nil when it is none.
func (j *jobDecoder) expression(n *yamlfile.Node, what string) *regexp.Regexp {
	text, ok := j.Text(n, what)
	if !ok {
		return nil
	}
	if text == "" || len(text) > param.MaxPattern {
		j.Fail(n, "", "%s must have 1 to %d characters", what, param.MaxPattern)
		return nil
	}
	expression, err := regexp.Compile(text)
	if err != nil {
		j.Fail(n, expressionHint, "%s: %s", what, err)
	}
	return expression
}

func (j *jobDecoder) errorCode(n *yamlfile.Node) string {
	text, ok := j.Text(n, "code")
	switch {
	case !ok:
	case slices.Contains(finalCodes, text):
		j.Fail(n, "the daemon ends operations with it", "code cannot be %q", text)
	case !errorCode.MatchString(text):
		j.Fail(n, "small letters, digits and _, a letter first, 63 characters at most", "code cannot be %q", phrase.Clip(text))
	}
	return text
}
