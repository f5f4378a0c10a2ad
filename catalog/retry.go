package catalog

import (
	"strconv"
	"time"
)

// Retry says how often work is tried, and how long is waited before it is tried again.
type Retry struct {
	// MaxAttempts are the attempts that may fail, the first one too; at least 1.
	MaxAttempts int
	// Initial is the wait after the first failure; 0 begins the next attempt at once.
	Initial time.Duration
	// Factor is by how much each further wait is longer, 1 to 100.
	Factor float64
	// Cap is the longest wait.
	Cap time.Duration
	// Jitter is the part of a wait that is left to chance, 0 to 1, so that many operations which failed at one time do not come back at one.
	Jitter float64
	// For bounds the time from the start of the first attempt that failed to that of the last one; 0 is no bound.
	For time.Duration
}

// UnboundedAttempts are the attempts of a job that bounds them by time alone, and the most that a job may name.
const UnboundedAttempts = 1_000_000

// The values of retry for what a job does not say.
const (
	DefaultRetryFactor = 2
	DefaultRetryCap    = 10 * time.Minute
	DefaultRetryJitter = 0.2
)

// Class says what is done when an attempt fails in a certain way.
type Class string

// The classes. An attempt without one is judged by the daemon: what died, hung or took too long may be tried again, any other failure is
// final.
const (
	ClassRetryable Class = "retryable" // it may go well another time: tried again while attempts remain
	ClassManual    Class = "manual"    // only a person can mend it: the operation becomes failed_manual
	ClassWarn      Class = "warn"      // neither a failure nor an attempt: tried again later, as often as it takes
)

// ExitCodes are the classes of failures, as a job declares them; the zero value declares none.
type ExitCodes struct{ classes map[string]Class }

// Class returns the class of an attempt that failed with an error code and, when that is exit_code, an exit code; "" when the job says
// nothing of it. What is said of the exit code counts before what is said of all exit codes.
func (e ExitCodes) Class(code string, exit *int) Class {
	if code == "exit_code" && exit != nil {
		if class, ok := e.classes[strconv.Itoa(*exit)]; ok {
			return class
		}
	}
	return e.classes[code]
}

// sysexits are the classes of sysexits(3): a service or a resource that is away comes back, and permissions and configuration are
// mended by a person. The others are mistakes in what was asked or in the program.
var sysexits = map[string]Class{
	"69": ClassRetryable, // EX_UNAVAILABLE
	"71": ClassRetryable, // EX_OSERR
	"74": ClassRetryable, // EX_IOERR
	"75": ClassRetryable, // EX_TEMPFAIL
	"77": ClassManual,    // EX_NOPERM
	"78": ClassManual,    // EX_CONFIG
}
