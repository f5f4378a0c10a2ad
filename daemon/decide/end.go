package decide

import (
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// End ends the record of an operation, which has the end of its work and its counts already. A record with Trailing set
// has its result while optional steps go on. The caller adds what only files tell.
func End(rec *statefs.Record, from statefs.State, cause statefs.Cause, now time.Time) error {
	if err := rec.Apply(from, cause, now); err != nil {
		return err
	}
	rec.Next = ""
	if len(rec.Steps) > 0 && cause != statefs.CauseMainDone && cause != statefs.CauseDone {
		cutOff(rec, func(s *steps.Step) bool { return s.Status == steps.FailedRetryable })
		if from == statefs.WaitingApproval {
			rec.Reason = "" // the approval is no longer needed
		}
	}
	if rec.Status == statefs.Trailing {
		rec.Status, rec.Trailing = statefs.Completed, true
	}
	if rec.HeartbeatAt != nil && rec.HeartbeatAt.After(*rec.FinishedAt) {
		rec.HeartbeatAt = rec.FinishedAt // the heartbeat was read after the command had ended
	}
	switch {
	case rec.Status == statefs.Cancelled:
		rec.Result = statefs.CancelledResult
	case rec.Status == statefs.Failed:
		rec.Result = statefs.Failure
	case rec.FailedN > 0:
		rec.Result = statefs.Partial
	default:
		rec.Result = statefs.Success
	}
	return nil
}

// EndTrailing ends the record of a trailing operation whose optional steps have ended.
func EndTrailing(rec *statefs.Record, cause statefs.Cause, now time.Time) error {
	cutOff(rec, func(s *steps.Step) bool {
		return s.Optional && (s.Status == steps.FailedRetryable || s.Status == steps.Running)
	})
	rec.Trailing, rec.Next = false, ""
	return rec.Apply(statefs.Trailing, cause, now)
}

// cutOff cuts off the chosen steps, which were to be retried or are no longer running, in a copy of the list.
func cutOff(rec *statefs.Record, which func(*steps.Step) bool) {
	rec.Steps = steps.Clone(rec.Steps)
	for i := range rec.Steps {
		if s := &rec.Steps[i]; which(s) {
			_ = s.Apply(steps.CauseCutOff) // such a step can be cut off
			s.DueAt = nil
		}
	}
}
