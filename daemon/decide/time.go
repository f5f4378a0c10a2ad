package decide

import "github.com/jobdir/jobdir/statefs"

// A limit has no effect once the required steps are done. Work that runs is ended first.
func (LimitExpired) decide(s Snapshot, _ Env) Answer {
	switch {
	case s.State == statefs.Trailing:
		return do(None)
	case s.Working:
		return do(EndExpired)
	}
	return by(Expire, statefs.CauseExpired)
}

func (TimeCame) decide(s Snapshot, _ Env) Answer {
	if s.State == statefs.Scheduled || s.State == statefs.FailedRetryable {
		return by(Due, statefs.CauseDue)
	}
	return do(None)
}

func (o ParentSeen) decide(Snapshot, Env) Answer {
	switch {
	case o.Live:
		return do(Wait)
	case !o.AnyEnd && o.Status != statefs.Completed:
		return by(LeaveToPerson, statefs.CauseDependency)
	}
	return do(None)
}

// What is queued is left to the next daemon while this one drains.
func (Undisturbed) decide(s Snapshot, e Env) Answer {
	switch {
	case s.State == statefs.Queued && e.Draining:
		return do(Wait)
	case s.State == statefs.Queued:
		return do(TryStart)
	case s.State == statefs.Trailing:
		return do(Trail)
	}
	return do(FollowWork)
}

func (Admitted) decide(s Snapshot, _ Env) Answer {
	if s.State == statefs.Queued && !s.Working {
		return by(Begin, statefs.CauseStart)
	}
	return do(None)
}
