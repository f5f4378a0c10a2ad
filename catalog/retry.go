package catalog

import (
	"slices"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/catalog/phrase"
	"github.com/jobdir/jobdir/catalog/yamlfile"
	"github.com/jobdir/jobdir/daemon/outbox"
)

// Retry decides how often work is retried, and after which waits.
type Retry struct {
	// MaxAttempts are the attempts that may fail, the first one too; at least 1.
	MaxAttempts int
	// Initial is the wait after the first failure; 0 begins the next attempt at once.
	Initial time.Duration
	// Factor is by how much each further wait is longer, 1 to 100.
	Factor float64
	// Cap is the longest wait.
	Cap time.Duration
	// Jitter is the part of a wait that is left to chance, 0 to 1, so that many operations which failed at one time
	// do not come back at one.
	Jitter float64
	// For bounds the time from the start of the first attempt that failed to that of the last one; 0 is no bound.
	For time.Duration
}

// UnboundedAttempts are the attempts of a job that bounds them by time alone, and the most that a job may name.
const UnboundedAttempts = 1_000_000

// The defaults of retry.
const (
	DefaultRetryFactor = 2
	DefaultRetryCap    = 10 * time.Minute
	DefaultRetryJitter = 0.2
)

// CrashLimit is a budget of deaths: work that dies Burst times Within a time is not started again. In a [Definition]
// a field that the job does not give is 0.
type CrashLimit struct {
	Burst  int           `json:"burst"`
	Within time.Duration `json:"within"`
}

// DefaultCrashLimit is the limit of a daemon whose configuration has none.
var DefaultCrashLimit = CrashLimit{Burst: 5, Within: 10 * time.Minute}

// MaxCrashBurst is the largest Burst, MaxCrashWithin the longest Within: the record keeps the time of each death.
const (
	MaxCrashBurst  = 100
	MaxCrashWithin = 30 * 24 * time.Hour
)

// Or returns the limit with its missing fields taken from other.
func (l CrashLimit) Or(other CrashLimit) CrashLimit {
	if l.Burst == 0 {
		l.Burst = other.Burst
	}
	if l.Within == 0 {
		l.Within = other.Within
	}
	return l
}

// Class decides what happens after a failure of some kind.
type Class string

// The classes. A failure without one is tried again while attempts remain.
const (
	ClassRetryable Class = "retryable" // tried again while attempts remain, also work that was cut off
	ClassManual    Class = "manual"    // only a person can mend it: the operation becomes failed_manual
	ClassFinal     Class = "final"     // another attempt would fail too: it is the last one
	ClassWarn      Class = "warn"      // neither a failure nor an attempt: tried again later, as often as it takes
)

// ExitCodes maps failures to classes, as a job declares them; the zero value belongs to a job that declares
// none.
type ExitCodes struct {
	classes   map[string]Class
	shorthand bool // written as sysexits
}

// Class returns the class of an attempt that failed with an error code and, if that is exit_code, an exit
// code; "" if it has none. A class for the exit code precedes a class for all exit codes.
func (e ExitCodes) Class(code string, exit *int) Class {
	if e.classes == nil {
		e.classes = defaultClasses
	}
	if code == "exit_code" && exit != nil {
		if class, ok := e.classes[strconv.Itoa(*exit)]; ok {
			return class
		}
	}
	return e.classes[code]
}

// defaultClasses are those of a job without exit_codes: permissions and configuration are corrected by a person.
var defaultClasses = map[string]Class{"77": ClassManual, "78": ClassManual}

// sysexits are the classes of sysexits(3): a service or a resource that is away comes back.
var sysexits = map[string]Class{
	"69": ClassRetryable, // EX_UNAVAILABLE
	"71": ClassRetryable, // EX_OSERR
	"74": ClassRetryable, // EX_IOERR
	"75": ClassRetryable, // EX_TEMPFAIL
	"77": ClassManual,    // EX_NOPERM
	"78": ClassManual,    // EX_CONFIG
}

// maxWait is the longest wait between two attempts.
const maxWait = 30 * 24 * time.Hour

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
