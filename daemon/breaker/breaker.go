// Package breaker decides when a lane stops starting work because too many runs have failed, and when it
// continues. It is a pure state machine: no clock, files, goroutines or locks. Times are arguments, and the
// caller acts on the results.
//
//	         Failures within Within                 Cooldown is over
//	Closed ──────────────────────────▶ Open ──────────────────────────▶ Trial
//	  ▲                                 ▲                                 │ Started: one operation is admitted
//	  │                                 └──── it failed ──────────────────┤
//	  └────────────────────────────────────── it succeeded ───────────────┘
//
// While it is Open nothing starts. Operations that were running when it opened have no influence, however
// they end. In Trial one operation starts, and nothing else until it has ended. If its end is inconclusive
// (it was cancelled, or it failed with an error that does not count), the next operation becomes the trial.
//
// No call can fail. When the clock is set back, later failures are dated to the present, so that they expire
// no later than they would have.
package breaker

import (
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Settings decide when a breaker opens and for how long.
type Settings struct {
	// Failures is the number of failures within the time Within that opens it; at least 1.
	Failures int
	Within   time.Duration
	// Cooldown is how long it stays open before the trial.
	Cooldown time.Duration
	// Codes are the failures that count, by names that the caller chooses: error codes, classes, exit codes;
	// nil: all.
	Codes []string
}

// State is the state of a breaker.
type State string

// The states.
const (
	Closed State = "closed" // everything starts
	Open   State = "open"   // nothing starts
	Trial  State = "trial"  // one operation starts, and its result decides
)

// Breaker is one state machine, made by New. It is not safe for concurrent use.
type Breaker struct {
	settings Settings
	state    State
	failures []time.Time // counted ones, oldest first; while Closed
	until    time.Time   // while Open
	trial    statefs.ID  // while Trial: the trial operation; zero: none started yet
}

// New makes a closed breaker.
func New(s Settings) *Breaker {
	s.Failures = max(s.Failures, 1)
	return &Breaker{settings: s, state: Closed}
}

// Restore sets the state of a breaker from before a restart: open until a time, or in trial if trial is not
// zero.
func (b *Breaker) Restore(until time.Time, trial statefs.ID) {
	b.failures, b.until, b.trial, b.state = nil, until, trial, Open
	if trial != (statefs.ID{}) {
		b.state = Trial
	}
}

// RestoreFailures adds failures from before a restart to a closed breaker. They do not open it; the next
// failure does if there are enough.
func (b *Breaker) RestoreFailures(failures []time.Time) {
	if b.state != Closed {
		return
	}
	b.failures = append(slices.Clone(failures), b.failures...)
	slices.SortFunc(b.failures, time.Time.Compare)
	b.failures = b.failures[max(0, len(b.failures)-b.settings.Failures+1):]
}

// CountedFailures returns the failures that count, oldest first, without the failures that had expired at
// the last call of Failures or Failed.
func (b *Breaker) CountedFailures() []time.Time { return slices.Clone(b.failures) }

// Reset closes the breaker on request of a person.
func (b *Breaker) Reset() {
	b.state, b.failures, b.until, b.trial = Closed, nil, time.Time{}, statefs.ID{}
}

// State returns the state after the last call that changed it.
func (b *Breaker) State() State { return b.state }

// Until returns when the trial may start; the zero time unless it is Open.
func (b *Breaker) Until() time.Time {
	if b.state != Open {
		return time.Time{}
	}
	return b.until
}

// TrialID returns the trial operation; the zero ID if there is none.
func (b *Breaker) TrialID() statefs.ID { return b.trial }

// Blocks reports whether starts are blocked.
func (b *Breaker) Blocks() bool {
	return b.state == Open || b.state == Trial && b.trial != (statefs.ID{})
}

// Failures returns how many failures count now.
func (b *Breaker) Failures(now time.Time) int {
	b.forget(now)
	return len(b.failures)
}

// AllowTrial changes from Open to Trial if the cooldown is over, and reports whether it did.
func (b *Breaker) AllowTrial(now time.Time) bool {
	if b.state != Open || now.Before(b.until) {
		return false
	}
	b.state, b.trial = Trial, statefs.ID{}
	return true
}

// Started records the start of an operation and reports whether it is the trial.
func (b *Breaker) Started(id statefs.ID) bool {
	if b.state != Trial || b.trial != (statefs.ID{}) {
		return false
	}
	b.trial = id
	return true
}

// Failed records a failed run with its error code and reports whether that opens the breaker, again or for
// the first time.
func (b *Breaker) Failed(id statefs.ID, code string, at time.Time) bool {
	counts := b.settings.Codes == nil || slices.Contains(b.settings.Codes, code)
	switch {
	case !counts:
		b.Inconclusive(id)
		return false
	case b.state == Trial && b.trial == id && id != (statefs.ID{}):
	case b.state == Closed:
		b.forget(at)
		b.failures = append(b.failures, at)
		if len(b.failures) < b.settings.Failures {
			return false
		}
	default:
		return false // it was already running when the breaker opened
	}
	b.state, b.failures, b.trial, b.until = Open, nil, statefs.ID{}, at.Add(b.settings.Cooldown)
	return true
}

// Succeeded records a successful run and reports whether that closes the breaker.
func (b *Breaker) Succeeded(id statefs.ID) bool {
	if b.state != Trial || b.trial != id || id == (statefs.ID{}) {
		return false
	}
	b.Reset()
	return true
}

// Inconclusive records a run without a verdict and reports whether another operation may become the trial
// instead.
func (b *Breaker) Inconclusive(id statefs.ID) bool {
	if b.state != Trial || b.trial != id || id == (statefs.ID{}) {
		return false
	}
	b.trial = statefs.ID{}
	return true
}

// forget removes expired failures.
func (b *Breaker) forget(now time.Time) {
	for i := len(b.failures) - 1; i >= 0 && b.failures[i].After(now); i-- {
		b.failures[i] = now
	}
	b.failures = slices.DeleteFunc(b.failures, func(at time.Time) bool { return now.Sub(at) >= b.settings.Within })
}
