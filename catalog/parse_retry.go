package catalog

import (
	"slices"
	"strconv"
	"time"
)

// maxWait is the longest wait between two attempts.
const maxWait = 30 * 24 * time.Hour

// checkRetry completes a retry, and checks its keys against each other.
func checkRetry(j *jobDecoder, _ *node) {
	r := &j.def.Retry
	at := func(key string) *node { return j.at["retry."+key] }
	if at("max_attempts") == nil && at("retry_for") != nil {
		r.MaxAttempts = UnboundedAttempts
	}
	for _, key := range []string{"factor", "cap", "jitter"} {
		if at(key) != nil && at("initial") == nil {
			j.fail(at(key), "add initial, the wait after the first failure", "%s has a meaning only with initial", key)
		}
	}
	switch {
	case at("cap") == nil:
		r.Cap = max(DefaultRetryCap, r.Initial)
	case at("initial") != nil && r.Cap < r.Initial:
		j.fail(at("cap"), "", "cap is shorter than initial")
	}
}

var errorCode = words(`[a-z][a-z0-9_]*`, 63)

// finalCodes are error codes that end an operation regardless of its job.
var finalCodes = []string{"deadline_exceeded", "queue_timeout"}

// exitCodes are the failures that may go well another time, that need a person, and that are none.
func exitCodes() form {
	f := mapping(exitCodesKeys, "", func(def *Definition) { def.ExitCodes = ExitCodes{classes: map[string]Class{}} }, nil)
	read := f.read
	f.short = "sysexits"
	f.read = func(j *jobDecoder, n *node, key string) {
		if n.kind != textKind {
			read(j, n, key)
		} else if _, ok := j.word(n, key, []string{f.short}); ok {
			j.def.ExitCodes = ExitCodes{classes: sysexits, shorthand: true}
		}
	}
	return f
}

// failures are the failures of one class.
var failures = custom("list of failures", `"$ref": "#/$defs/failures"`, func(j *jobDecoder, n *node, key string) {
	classes := j.def.ExitCodes.classes
	for _, e := range j.list(n, key) {
		name := j.failure(e, key)
		if name == "" {
			continue
		}
		if other, twice := classes[name]; twice {
			j.fail(e, "it can have one class", "%s is in %s already", name, other)
		}
		classes[name] = Class(key)
	}
})

// failure reads an exit code, or the code of an error.
func (d *decoder) failure(n *node, key string) string {
	switch n.kind {
	case integerKind:
		v, ok := d.integer(n, key)
		if ok && (v < 1 || v > 255) {
			d.fail(n, "an exit code is 1 to 255", "%s cannot have %d", key, v)
		}
		return strconv.FormatInt(v, 10)
	case textKind:
		switch {
		case slices.Contains(finalCodes, n.text):
			d.fail(n, "it ends the operation", "%s cannot have %q", key, n.text)
		case !errorCode.MatchString(n.text):
			d.fail(n, "an exit code such as 75, or the code of an error such as timeout", "%s cannot have %q", key, clip(n.text))
		}
		return n.text
	case mappingKind, listKind, numberKind, booleanKind, nullKind:
	}
	d.fail(n, "an exit code such as 75, or the code of an error such as timeout", "%s cannot have %s", key, n.kind)
	return ""
}
