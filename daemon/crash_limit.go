package daemon

import (
	"fmt"
	"slices"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/param"
	"github.com/jobdir/jobdir/statefs"
)

// reasonCrashLimit is the prefix of the reason of an operation that waits for a person because its
// work died too often.
const reasonCrashLimit = "crash_limit"

// addDeath returns the deaths that count towards a crash limit, the new one last: those within the
// limit's period, at most limit.Burst of them. A death later than the new one was recorded before
// the clock was set back, and counts as of now. It is a pure function.
func addDeath(before []time.Time, at time.Time, limit catalog.CrashLimit) []time.Time {
	var deaths []time.Time
	for _, t := range before {
		if t.After(at) {
			t = at
		}
		if at.Sub(t) <= limit.Within {
			deaths = append(deaths, t)
		}
	}
	deaths = append(deaths, at)
	return slices.Clip(deaths[max(0, len(deaths)-limit.Burst):])
}

// crashLimitOf returns the crash limit of a job. Fields that the job does not set come from the
// configuration.
func (d *Daemon) crashLimitOf(def *catalog.Definition) catalog.CrashLimit {
	return def.CrashLimit.Or(d.config.CrashLimit)
}

// crashReason returns the reason for the record of an operation whose crash limit is used up.
func crashReason(limit catalog.CrashLimit) string { return reasonCrashLimit + ": " + crashText(limit) }

func crashText(limit catalog.CrashLimit) string {
	return fmt.Sprintf("it died %d times within %s", limit.Burst, param.FormatDuration(limit.Within))
}

// runStartedAt returns when the current run of an operation started.
func runStartedAt(rec *statefs.Record) time.Time {
	if at := rec.CurrentStep(); at != nil && at.StartedAt != nil {
		return *at.StartedAt
	}
	if rec.StartedAt != nil {
		return *rec.StartedAt
	}
	return rec.CreatedAt
}
