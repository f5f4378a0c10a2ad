package catalog

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxWait is the longest wait between two attempts.
const maxWait = 30 * 24 * time.Hour

func (j *jobDecoder) retry(n *node) {
	r := Retry{Factor: DefaultRetryFactor, Cap: DefaultRetryCap, Jitter: DefaultRetryJitter}
	at := map[string]*node{}
	if !j.mapping(n, retryKeys, func(key string, k, n *node) {
		at[key], j.at["retry."+key] = k, k
		switch key {
		case "max_attempts":
			v, ok := j.integer(n, key)
			if ok && (v < 1 || v > UnboundedAttempts) {
				j.fail(n, "it counts the first attempt too: 1 to 1000000", "max_attempts cannot be %d", v)
			}
			r.MaxAttempts = int(v)
		case "initial":
			r.Initial = j.duration(n, key, maxWait, "leave the key out to try again at once")
		case "factor":
			r.Factor = j.between(n, key, 1, 100)
		case "cap":
			r.Cap = j.duration(n, key, maxWait, "leave the key out for 10m")
		case "jitter":
			r.Jitter = j.between(n, key, 0, 1)
		case "retry_for":
			r.For = j.duration(n, key, maxTimeout, "leave the key out for no bound")
		}
	}) {
		return
	}
	switch {
	case at["max_attempts"] != nil:
	case at["retry_for"] != nil:
		r.MaxAttempts = UnboundedAttempts
	default:
		r.MaxAttempts = 1
	}
	for _, key := range []string{"factor", "cap", "jitter"} {
		if at[key] != nil && at["initial"] == nil {
			j.fail(at[key], "add initial, the wait after the first failure", "%s has a meaning only with initial", key)
		}
	}
	switch {
	case at["initial"] == nil:
	case at["cap"] == nil:
		r.Cap = max(r.Cap, r.Initial)
	case r.Cap < r.Initial:
		j.fail(at["cap"], "", "cap is shorter than initial")
	}
	j.def.Retry = r
}

// between reads a number of a range, both ends included.
func (j *jobDecoder) between(n *node, key string, least, most float64) float64 {
	if n.kind == integerKind || n.kind == numberKind {
		if v, err := strconv.ParseFloat(strings.ReplaceAll(n.text, "_", ""), 64); err == nil && v >= least && v <= most {
			return v
		}
	}
	j.fail(n, "", "%s must be a number from %g to %g, not %s", key, least, most, n.describe())
	return least
}

var errorCode = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// finalCodes are error codes that end an operation regardless of its job.
var finalCodes = []string{"deadline_exceeded", "queue_timeout"}

// exitCodes reads which failures may go well another time, which need a person, and which are none.
func (j *jobDecoder) exitCodes(n *node) {
	if n.kind == textKind {
		if _, ok := j.word(n, "exit_codes", []string{"sysexits"}); ok {
			j.def.ExitCodes = ExitCodes{classes: sysexits, shorthand: true}
		}
		return
	}
	classes := map[string]Class{}
	j.mapping(n, exitCodesKeys, func(key string, _, n *node) {
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
	j.def.ExitCodes = ExitCodes{classes: classes}
}

// failure reads an exit code, or the code of an error.
func (j *jobDecoder) failure(n *node, key string) string {
	switch n.kind {
	case integerKind:
		v, ok := j.integer(n, key)
		if ok && (v < 1 || v > 255) {
			j.fail(n, "an exit code is 1 to 255", "%s cannot have %d", key, v)
		}
		return strconv.FormatInt(v, 10)
	case textKind:
		switch {
		case slices.Contains(finalCodes, n.text):
			j.fail(n, "it ends the operation", "%s cannot have %q", key, n.text)
		case !errorCode.MatchString(n.text):
			j.fail(n, "an exit code such as 75, or the code of an error such as timeout", "%s cannot have %q", key, clip(n.text))
		}
		return n.text
	case mappingKind, listKind, numberKind, booleanKind, nullKind:
	}
	j.fail(n, "an exit code such as 75, or the code of an error such as timeout", "%s cannot have %s", key, n.kind)
	return ""
}
