package catalog

import (
	"cmp"
	"regexp"
	"strconv"
	"time"
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
	return CrashLimit{Burst: cmp.Or(l.Burst, other.Burst), Within: cmp.Or(l.Within, other.Within)}
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

// ErrorPattern assigns a class and an error code to a failure whose output or error has a matching line.
type ErrorPattern struct {
	Match *regexp.Regexp
	// Class is what is done, "" leaves it to the exit code.
	Class Class
	// Code is the error code, "" leaves it as it is.
	Code string
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
