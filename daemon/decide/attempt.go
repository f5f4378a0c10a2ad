package decide

import (
	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

func (o AttemptFailed) decide(_ Snapshot, e Env) Answer {
	a := Answer{Effect: NoteEnd, Counts: o.counts(e), Dies: o.dies()}
	attempts := e.Attempts
	if a.Counts {
		attempts++
	}
	a.Cause = o.cause(e, a.Counts, attempts)
	a.Crashed = a.Cause == statefs.CauseNeedsPerson && o.Class != catalog.ClassManual
	if a.Cause == statefs.CauseRescued && (a.Counts || o.Class == catalog.ClassWarn) {
		a.Effect = PlanRetry
	}
	a.Cause = ofStep(o.Step, a.Cause)
	return a
}

// ofStep returns the cause by which an operation goes on after its step has failed: a person decides about a step
// that is not tried again.
func ofStep(step bool, cause statefs.Cause) statefs.Cause {
	if step && cause == statefs.CauseFailed {
		return statefs.CauseNeedsPerson
	}
	return cause
}

// cause returns the cause that follows from the rules of the job and its budgets. CauseRescued means that it is tried
// again.
func (o AttemptFailed) cause(e Env, counts bool, attempts int) statefs.Cause {
	switch {
	case o.Partial && (attempts >= e.MaxAttempts || o.Class != "" && o.Class != catalog.ClassRetryable):
		return statefs.CauseDone
	case o.TimeOver:
		return statefs.CauseExpired
	case o.Class == catalog.ClassManual:
		return statefs.CauseNeedsPerson
	case o.Class == catalog.ClassWarn:
		return statefs.CauseRescued
	case o.Class == catalog.ClassFinal, o.usesRestartRule() && e.Restart == catalog.RestartFail:
		return statefs.CauseFailed
	case counts && attempts >= e.MaxAttempts:
		return statefs.CauseFailed
	case o.dies() && e.Deaths >= e.Burst:
		return statefs.CauseNeedsPerson
	}
	return statefs.CauseRescued
}

// counts reports whether the run counts as an attempt.
func (o AttemptFailed) counts(e Env) bool {
	return !o.Uncounted && (o.Class != catalog.ClassWarn || o.Partial) &&
		(!o.usesRestartRule() || e.Restart == catalog.RestartRetry)
}

// usesRestartRule reports whether the job's restart rule decides instead of its retry rule: the work was cut off, and
// its error code has no class.
func (o AttemptFailed) usesRestartRule() bool { return o.CutOff && o.Class == "" }

// dies reports whether the run died without a verdict of its own or of the daemon, which counts for the crash limit.
func (o AttemptFailed) dies() bool {
	return (o.Signal || o.CutOff) && o.Class != catalog.ClassWarn && !o.Uncounted
}

// A run whose retry would exceed a time limit is the last one.
func (o RetryPlanned) decide(Snapshot, Env) Answer {
	switch {
	case o.Exceeds && o.Partial:
		return by(NoteEnd, statefs.CauseDone)
	case o.Exceeds:
		return by(NoteEnd, ofStep(o.Step, statefs.CauseFailed))
	case o.Waits:
		return by(NoteEnd, statefs.CauseRetryLater)
	}
	return by(NoteEnd, statefs.CauseRescued)
}
