// Package breaker decides when a lane stops starting work because too much of it has failed, and when it goes on. It is a state machine and
// nothing else: no clock, no files, no goroutine and no lock. Times are arguments, and the caller carries out what it says.
//
//	         Failures within Within                 Cooldown is over
//	Closed ──────────────────────────▶ Open ──────────────────────────▶ Trial
//	  ▲                                 ▲                                 │ Began: one operation is let through
//	  │                                 └──── it failed ──────────────────┤
//	  └────────────────────────────────────── it succeeded ───────────────┘
//
// While it is Open nothing starts. What ran already when it opened proves nothing, however it ends. In Trial one operation starts and
// nothing else does until that has ended; when it ends in a way that says nothing (somebody cancelled it, or it failed with an error that
// does not count) the next one is let through.
//
// Nothing can fail. A clock that is set back makes earlier failures as old as now, so that they count for no longer than they would have.
package breaker

import (
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Settings say when a breaker opens and for how long.
type Settings struct {
	// Failures is how many within the time Within open it; at least 1.
	Failures int
	Within   time.Duration
	// Cooldown is how long it stays open before it lets one operation through.
	Cooldown time.Duration
	// On are the failures that count, by the names that the caller gives them: error codes, classes, exit codes; nil: all of them.
	On []string
}

// State is where a breaker stands.
type State string

// The states.
const (
	Closed State = "closed" // everything starts
	Open   State = "open"   // nothing starts
	Trial  State = "trial"  // one operation starts, and what becomes of it decides
)

// Breaker is one state machine. It is made by New, and is not safe for concurrent use.
type Breaker struct {
	settings Settings
	state    State
	failures []time.Time // that count, oldest first; while Closed
	until    time.Time   // while Open
	trial    statefs.ID  // while Trial: who was let through; zero: nobody yet
}

// New makes a closed breaker.
func New(s Settings) *Breaker {
	s.Failures = max(s.Failures, 1)
	return &Breaker{settings: s, state: Closed}
}

// Restore puts a breaker where an earlier one stood that was open until a time; trial is who it had let through then, if anybody.
func (b *Breaker) Restore(until time.Time, trial statefs.ID) {
	b.failures, b.until, b.trial, b.state = nil, until, trial, Open
	if trial != (statefs.ID{}) {
		b.state = Trial
	}
}

// Recall has a closed breaker count failures of before a restart. It does not open by that: a later one does, if they are enough.
func (b *Breaker) Recall(failures []time.Time) {
	if b.state != Closed {
		return
	}
	b.failures = append(slices.Clone(failures), b.failures...)
	slices.SortFunc(b.failures, time.Time.Compare)
	b.failures = b.failures[max(0, len(b.failures)-b.settings.Failures+1):]
}

// Counted returns the failures that count, oldest first; those that were too old when it was last asked or told are none of them.
func (b *Breaker) Counted() []time.Time { return slices.Clone(b.failures) }

// Reset closes it: a person says that the lane goes on.
func (b *Breaker) Reset() {
	b.state, b.failures, b.until, b.trial = Closed, nil, time.Time{}, statefs.ID{}
}

// State returns where it stands, as of the last call that changes anything.
func (b *Breaker) State() State { return b.state }

// Until returns when it lets one operation through; the zero time unless it is Open.
func (b *Breaker) Until() time.Time {
	if b.state != Open {
		return time.Time{}
	}
	return b.until
}

// TrialID returns who was let through and has not ended; the zero ID when there is nobody.
func (b *Breaker) TrialID() statefs.ID { return b.trial }

// Holds reports whether nothing may start.
func (b *Breaker) Holds() bool {
	return b.state == Open || b.state == Trial && b.trial != (statefs.ID{})
}

// Failures returns how many failures count now.
func (b *Breaker) Failures(now time.Time) int {
	b.forget(now)
	return len(b.failures)
}

// Pass lets one operation through when it is open and the time has come for it; it reports whether it does.
func (b *Breaker) Pass(now time.Time) bool {
	if b.state != Open || now.Before(b.until) {
		return false
	}
	b.state, b.trial = Trial, statefs.ID{}
	return true
}

// Began says that an operation has started. It reports whether that is the one which is tried.
func (b *Breaker) Began(id statefs.ID) bool {
	if b.state != Trial || b.trial != (statefs.ID{}) {
		return false
	}
	b.trial = id
	return true
}

// Failed says that a run has failed with an error code. It reports whether that opens the breaker, again or for the first time.
func (b *Breaker) Failed(id statefs.ID, code string, at time.Time) bool {
	counts := b.settings.On == nil || slices.Contains(b.settings.On, code)
	switch {
	case !counts:
		b.Left(id)
		return false
	case b.state == Trial && b.trial == id && id != (statefs.ID{}):
	case b.state == Closed:
		b.forget(at)
		b.failures = append(b.failures, at)
		if len(b.failures) < b.settings.Failures {
			return false
		}
	default:
		return false // it ran already when the breaker opened
	}
	b.state, b.failures, b.trial, b.until = Open, nil, statefs.ID{}, at.Add(b.settings.Cooldown)
	return true
}

// Succeeded says that a run went well. It reports whether that closes the breaker.
func (b *Breaker) Succeeded(id statefs.ID) bool {
	if b.state != Trial || b.trial != id || id == (statefs.ID{}) {
		return false
	}
	b.Reset()
	return true
}

// Left says that a run has ended in a way that says nothing. It reports whether another one may be tried for it.
func (b *Breaker) Left(id statefs.ID) bool {
	if b.state != Trial || b.trial != id || id == (statefs.ID{}) {
		return false
	}
	b.trial = statefs.ID{}
	return true
}

// forget drops the failures that are too old.
func (b *Breaker) forget(now time.Time) {
	for i := len(b.failures) - 1; i >= 0 && b.failures[i].After(now); i-- {
		b.failures[i] = now
	}
	b.failures = slices.DeleteFunc(b.failures, func(at time.Time) bool { return now.Sub(at) >= b.settings.Within })
}
