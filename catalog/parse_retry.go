package catalog

import (
	"regexp"
	"slices"
	"strconv"

	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
	"github.com/jobdir/jobdir/daemon/outbox"
)

// checkRetry completes a retry, and checks its keys against each other.
func checkRetry(j *jobDecoder, _ *yamlfile.Node) {
	r := &j.def.Retry
	at := func(key string) *yamlfile.Node { return j.at["retry."+key] }
	if at("max_attempts") == nil && at("retry_for") != nil {
		r.MaxAttempts = UnboundedAttempts
	}
	for _, key := range []string{"factor", "cap", "jitter"} {
		if at(key) != nil && at("initial") == nil {
			j.Fail(at(key), "add initial, the wait after the first failure", "%s has a meaning only with initial", key)
		}
	}
	switch {
	case at("cap") == nil:
		r.Cap = max(DefaultRetryCap, r.Initial)
	case at("initial") != nil && r.Cap < r.Initial:
		j.Fail(at("cap"), "", "cap is shorter than initial")
	}
}

// inheritCrashLimit gives a step what it leaves out of the crash limit from that of the job.
func inheritCrashLimit(j *jobDecoder, _ *yamlfile.Node) {
	if j.parent != nil {
		j.def.CrashLimit = j.def.CrashLimit.Or(j.parent.CrashLimit)
	}
}

const errorCode outbox.Expression = `^[a-z][a-z0-9_]{0,62}$`

// finalCodes are error codes that end an operation regardless of its job.
var finalCodes = []string{"deadline_exceeded", "queue_timeout"}

// exitCodes are the failures that may go well another time, that need a person, and that are none.
func exitCodes() form {
	f := mapping(exitCodesKeys, "", func(def *Definition) { def.ExitCodes = ExitCodes{classes: map[string]Class{}} }, nil)
	read := f.read
	f.short = "sysexits"
	f.read = func(j *jobDecoder, n *yamlfile.Node, key string) {
		if n.Kind != yamlfile.Text {
			read(j, n, key)
		} else if _, ok := j.Word(n, key, []string{f.short}); ok {
			j.def.ExitCodes = ExitCodes{classes: sysexits, shorthand: true}
		}
	}
	return f
}

var exitCodesKeys = table{
	sub(string(ClassRetryable), "", failures,
		"Tried again while attempts remain."),
	sub(string(ClassManual), "", failures,
		"The operation waits for a person as failed_manual."),
	sub(string(ClassWarn), "", failures,
		"Neither a failure nor an attempt: tried again after a wait, until retry_for or deadline is over."),
	sub(string(ClassFinal), "", failures,
		"Not tried again: failed."),
}

// failures are the failures of one class.
var failures = custom("list of failures", `"$ref": "#/$defs/failures"`, func(j *jobDecoder, n *yamlfile.Node, key string) {
	classes := j.def.ExitCodes.classes
	for _, e := range j.List(n, key) {
		name := j.failure(e, key)
		if name == "" {
			continue
		}
		if other, twice := classes[name]; twice {
			j.Fail(e, "it can have one class", "%s is in %s already", name, other)
		}
		classes[name] = Class(key)
	}
})

// failure reads an exit code, or the code of an error.
func (j *jobDecoder) failure(n *yamlfile.Node, key string) string {
	switch n.Kind {
	case yamlfile.Integer:
		v, ok := j.Integer(n, key)
		if ok && (v < 1 || v > 255) {
			j.Fail(n, "an exit code is 1 to 255", "%s cannot have %d", key, v)
		}
		return strconv.FormatInt(v, 10)
	case yamlfile.Text:
		switch {
		case slices.Contains(finalCodes, n.Text):
			j.Fail(n, "it ends the operation", "%s cannot have %q", key, n.Text)
		case !errorCode.MatchString(n.Text):
			j.Fail(n, "an exit code such as 75, or the code of an error such as timeout", "%s cannot have %q", key, phrase.Clip(n.Text))
		}
		return n.Text
	case yamlfile.Mapping, yamlfile.List, yamlfile.Number, yamlfile.Boolean, yamlfile.Null:
	}
	j.Fail(n, "an exit code such as 75, or the code of an error such as timeout", "%s cannot have %s", key, n.Kind)
	return ""
}

// maxErrors bounds the patterns of a step: each is held against the last lines of a failure.
const maxErrors = 64

// errorKeys are those of an element of errors.
var errorKeys = table{
	sub("match", "it is required", custom("expression", `"type": "string", "minLength": 1, "maxLength": 1000`, nil),
		"RE2 expression that is looked for in a line."),
	sub("class", "what the exit code says", custom("class", `"enum": ["retryable", "manual", "warn", "final"]`, nil),
		"retryable: tried again while attempts remain. final: not tried again. manual: waits for a person. warn: neither "+
			"a failure nor an attempt, tried again later."),
	sub("code", "that of the failure",
		custom("error code", `"type": "string", "pattern": "^[a-z][a-z0-9_]{0,62}$", `+
			`"not": {"enum": ["deadline_exceeded", "queue_timeout"]}`, nil),
		"The error code that is shown."),
}

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
