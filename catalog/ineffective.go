package catalog

import (
	"slices"
	"strconv"
	"time"
)

// Hints are settings of the definition without effect. The definition can be used nevertheless.
func (d *Definition) Hints() Problems { return d.hints }

// note adds a hint to the definition.
func (j *jobDecoder) note(at *node, hint, message string) {
	place := j.position(at)
	p := &Problem{File: place.File, Line: place.Line, Column: place.Column, Message: message, Hint: hint}
	if !slices.ContainsFunc(j.def.hints, func(h *Problem) bool { return *h == *p }) {
		j.def.hints = append(j.def.hints, p)
	}
}

// noteIneffective adds hints about failure settings of a job, or of a step as work of its own, that have no
// effect. at returns the node of a key, nil if the setting comes from elsewhere.
func (j *jobDecoder) noteIneffective(work *Definition, at func(key string) *node) {
	once := work.Retry.MaxAttempts == 1
	if k := at("restart"); k != nil && work.restart == RestartRetry && once {
		j.note(k, "add retry: {max_attempts: 3}, or write restart: fail",
			"restart: retry has one attempt here, so work that is cut off is not started again")
	}
	if k := at("retry"); k != nil {
		j.noteRetry(work, k)
	}
	if k := at("exit_codes"); k != nil {
		j.noteExitCodes(work, k, once)
	}
	if k := at("crash_limit"); k != nil && work.restart == RestartRetry &&
		work.CrashLimit.Burst >= work.Retry.MaxAttempts {
		j.note(k, "lower burst, or raise max_attempts",
			"with restart: retry the attempts are used up before this crash_limit")
	}
}

func (j *jobDecoder) noteRetry(work *Definition, k *node) {
	r := work.Retry
	shortest := time.Duration(float64(r.Initial) * (1 - r.Jitter))
	switch {
	case r.MaxAttempts == 1 && r.Initial > 0 && !work.ExitCodes.has(ClassWarn) && work.Work() != WorkHandler:
		j.note(k, "add max_attempts, or retry_for", "retry has one attempt, so nothing is tried again")
	case r.For > 0 && shortest > r.For:
		j.note(k, "raise retry_for", "retry_for is over before the first wait is")
	case work.Deadline > 0 && shortest > work.Deadline:
		j.note(k, "raise deadline, or lower initial", "the deadline is over before the first wait is")
	}
}

func (j *jobDecoder) noteExitCodes(work *Definition, k *node, once bool) {
	codes := work.ExitCodes
	switch {
	case work.Work() != WorkRun && codes.hasNumber():
		j.note(k, "name the error codes items_failed or handler_failed",
			"only the command of a job without items ends with an exit code of its own")
	case codes.shorthand || !codes.has(ClassRetryable) || codes.has(ClassFinal):
	case once:
		j.note(k, "add retry: {max_attempts: 3}", "retryable has no effect without retry")
	default:
		j.note(k, "name the failures that are not to be tried again in final",
			"retryable changes nothing: where retry is given every failure is tried again")
	}
}

// has reports whether some failure has the class.
func (e ExitCodes) has(class Class) bool {
	for name, c := range e.classes {
		if c == class && !slices.Contains(interruptedCodes, name) {
			return true
		}
	}
	return false
}

func (e ExitCodes) hasNumber() bool {
	for name := range e.classes {
		if _, err := strconv.Atoi(name); err == nil && !e.shorthand {
			return true
		}
	}
	return false
}

// interruptedCodes are the error codes of work that was cut off: a class of theirs has the retry decide, and not the
// restart.
var interruptedCodes = []string{"keeper_died", "lost"}
