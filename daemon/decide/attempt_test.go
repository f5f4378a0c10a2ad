package decide

import (
	"testing"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// Attempts counts the failed run too, if it is an attempt.
func TestAttemptFailed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		failed AttemptFailed
		e      Env
		want   statefs.Cause
	}{
		{
			"exit code, declared",
			AttemptFailed{Class: catalog.ClassRetryable},
			Env{Attempts: 1, MaxAttempts: 3},
			statefs.CauseRescued,
		},
		{
			"declared, none left",
			AttemptFailed{Class: catalog.ClassRetryable},
			Env{Attempts: 3, MaxAttempts: 3},
			statefs.CauseFailed,
		},
		{
			"for a person, at once",
			AttemptFailed{Class: catalog.ClassManual},
			Env{Attempts: 1, MaxAttempts: 3},
			statefs.CauseNeedsPerson,
		},
		{
			"for a person, none left",
			AttemptFailed{Class: catalog.ClassManual},
			Env{Attempts: 1, MaxAttempts: 1},
			statefs.CauseNeedsPerson,
		},
		{
			"declared as the last",
			AttemptFailed{Class: catalog.ClassFinal},
			Env{Attempts: 1, MaxAttempts: 3},
			statefs.CauseFailed,
		},
		{
			"a death is the last",
			AttemptFailed{CutOff: true, Class: catalog.ClassFinal},
			Env{Attempts: 1, Restart: catalog.RestartAdopt, MaxAttempts: 3, Burst: 5},
			statefs.CauseFailed,
		},
		{
			"counts as none",
			AttemptFailed{Class: catalog.ClassWarn},
			Env{Attempts: 9, MaxAttempts: 1},
			statefs.CauseRescued,
		},
		{
			"counts as no death",
			AttemptFailed{Signal: true, Class: catalog.ClassWarn},
			Env{MaxAttempts: 1, Deaths: 5, Burst: 5},
			statefs.CauseRescued,
		},
		{
			"deadline, attempts left",
			AttemptFailed{TimeOver: true, Class: catalog.ClassWarn},
			Env{Attempts: 1, MaxAttempts: 9},
			statefs.CauseExpired,
		},
		{"exit code, attempts left", AttemptFailed{}, Env{Attempts: 1, MaxAttempts: 3}, statefs.CauseRescued},
		{"exit code, none left", AttemptFailed{}, Env{Attempts: 3, MaxAttempts: 3}, statefs.CauseFailed},
		{"exit code, one attempt", AttemptFailed{}, Env{Attempts: 1, MaxAttempts: 1}, statefs.CauseFailed},
		{"log limit, attempts left", AttemptFailed{}, Env{Attempts: 1, MaxAttempts: 3}, statefs.CauseRescued},
		{"timed out, attempts left", AttemptFailed{}, Env{Attempts: 1, MaxAttempts: 2}, statefs.CauseRescued},
		{
			"stalled is no death",
			AttemptFailed{},
			Env{Attempts: 5, MaxAttempts: 9, Deaths: 5, Burst: 5},
			statefs.CauseRescued,
		},
		{
			"exit after deaths",
			AttemptFailed{Class: catalog.ClassRetryable},
			Env{Attempts: 5, MaxAttempts: 9, Deaths: 5, Burst: 5},
			statefs.CauseRescued,
		},
		{"items failed", AttemptFailed{Partial: true}, Env{Attempts: 1, MaxAttempts: 2}, statefs.CauseRescued},
		{
			"items failed, none left",
			AttemptFailed{Partial: true},
			Env{Attempts: 2, MaxAttempts: 2},
			statefs.CauseDone,
		},
		{
			"items failed, left alone",
			AttemptFailed{Partial: true, Class: catalog.ClassFinal},
			Env{Attempts: 1, MaxAttempts: 2},
			statefs.CauseDone,
		},
		{
			"items failed, for nobody",
			AttemptFailed{Partial: true, Class: catalog.ClassManual},
			Env{Attempts: 1, MaxAttempts: 2},
			statefs.CauseDone,
		},
		{
			"items failed, a retryable",
			AttemptFailed{Partial: true, Class: catalog.ClassRetryable},
			Env{Attempts: 1, MaxAttempts: 2},
			statefs.CauseRescued,
		},
		{
			"killed, one attempt",
			AttemptFailed{Signal: true},
			Env{Attempts: 1, MaxAttempts: 1, Deaths: 1, Burst: 5},
			statefs.CauseFailed,
		},
		{
			"killed, attempts left",
			AttemptFailed{Signal: true},
			Env{Attempts: 1, MaxAttempts: 3, Deaths: 1, Burst: 5},
			statefs.CauseRescued,
		},
		{
			"killed, none left",
			AttemptFailed{Signal: true},
			Env{Attempts: 2, MaxAttempts: 2, Deaths: 2, Burst: 5},
			statefs.CauseFailed,
		},
		{
			"killed, budget used up",
			AttemptFailed{Signal: true},
			Env{Attempts: 5, MaxAttempts: 9, Deaths: 5, Burst: 5},
			statefs.CauseNeedsPerson,
		},
		{
			"killed, both used up",
			AttemptFailed{Signal: true},
			Env{Attempts: 5, MaxAttempts: 5, Deaths: 5, Burst: 5},
			statefs.CauseFailed,
		},
		{
			"keeper died",
			AttemptFailed{CutOff: true},
			Env{Restart: catalog.RestartAdopt, MaxAttempts: 1, Deaths: 4, Burst: 5},
			statefs.CauseRescued,
		},
		{
			"keeper died too often",
			AttemptFailed{CutOff: true},
			Env{Restart: catalog.RestartAdopt, MaxAttempts: 1, Deaths: 5, Burst: 5},
			statefs.CauseNeedsPerson,
		},
		{
			"keeper died, left to retry",
			AttemptFailed{CutOff: true, Class: catalog.ClassRetryable},
			Env{Attempts: 1, MaxAttempts: 1, Deaths: 1, Burst: 5},
			statefs.CauseFailed,
		},
		{
			"cut off, resume",
			AttemptFailed{CutOff: true},
			Env{Restart: catalog.RestartResume, MaxAttempts: 1, Deaths: 1, Burst: 5},
			statefs.CauseRescued,
		},
		{
			"cut off, resume, budget used up",
			AttemptFailed{CutOff: true},
			Env{Restart: catalog.RestartResume, MaxAttempts: 9, Deaths: 5, Burst: 5},
			statefs.CauseNeedsPerson,
		},
		{
			"cut off, retry",
			AttemptFailed{CutOff: true},
			Env{Attempts: 1, Restart: catalog.RestartRetry, MaxAttempts: 2, Deaths: 1, Burst: 5},
			statefs.CauseRescued,
		},
		{
			"cut off, retry, attempts used up",
			AttemptFailed{CutOff: true},
			Env{Attempts: 2, Restart: catalog.RestartRetry, MaxAttempts: 2, Deaths: 2, Burst: 5},
			statefs.CauseFailed,
		},
		{
			"cut off, retry, budget used up",
			AttemptFailed{CutOff: true},
			Env{Attempts: 5, Restart: catalog.RestartRetry, MaxAttempts: 9, Deaths: 5, Burst: 5},
			statefs.CauseNeedsPerson,
		},
		{
			"cut off, retry, both used up",
			AttemptFailed{CutOff: true},
			Env{Attempts: 5, Restart: catalog.RestartRetry, MaxAttempts: 5, Deaths: 5, Burst: 5},
			statefs.CauseFailed,
		},
		{
			"cut off, retry, no attempts given",
			AttemptFailed{CutOff: true},
			Env{Attempts: 1, Restart: catalog.RestartRetry, MaxAttempts: 1, Deaths: 1, Burst: 5},
			statefs.CauseFailed,
		},
		{
			"cut off, fail",
			AttemptFailed{CutOff: true},
			Env{Restart: catalog.RestartFail, MaxAttempts: 9, Deaths: 1, Burst: 5},
			statefs.CauseFailed,
		},
	} {
		if c.failed.counts(c.e) {
			c.e.Attempts--
		}
		if got := Decide(Snapshot{}, c.failed, c.e).Cause; got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
