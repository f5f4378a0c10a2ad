package catalog

import (
	"slices"
	"strconv"
	"time"

	"github.com/jobdir/jobdir/catalog/yamlfile"
)

// Hints are settings of the definition without effect. The definition can be used nevertheless.
func (d *Definition) Hints() Problems { return d.hints }

// settings are the settings of a job, or of one step with those of the job as defaults.
type settings struct {
	*Definition
	job  *Definition               // the job of a step, nil for a job
	step *Step                     // nil for a job
	at   map[string]*yamlfile.Node // the keys by name
}

// ineffective are the settings without effect: where applies holds, the key has none. A row with a code is about
// that error code in exit_codes: applies tells that the work cannot fail with it.
var ineffective = []struct {
	key, code     string
	applies       func(s settings) bool
	message, hint string
}{
	{
		key:     "fail_when",
		applies: func(s settings) bool { return !s.hasItems() },
		message: "fail_when has no effect without items or handler", hint: "add items, or leave fail_when out",
	},
	{
		key:     "on_stall",
		applies: func(s settings) bool { return s.StallAfter == NoStall },
		message: "with stall_after: off no work is stalled, so on_stall has no effect", hint: "give stall_after a duration",
	},
	{
		key:     "stall_after",
		applies: func(s settings) bool { return s.hasWork() && s.Timeout > 0 && s.StallAfter > s.Timeout },
		message: "the timeout is over before stall_after is", hint: "lower stall_after, or raise timeout",
	},
	{
		key:     "stall_after",
		applies: func(s settings) bool { return s.hasWork() && s.meetsDeadline() && s.StallAfter >= s.Deadline },
		message: "the deadline is over before stall_after is", hint: "lower stall_after, or raise deadline",
	},
	{
		key:     "timeout",
		applies: func(s settings) bool { return s.hasWork() && s.meetsDeadline() && s.Timeout >= s.Deadline },
		message: "the deadline is over before the timeout is", hint: "lower timeout, or raise deadline",
	},
	{
		key:     "queue_timeout",
		applies: func(s settings) bool { return s.meetsDeadline() && s.QueueTimeout >= s.Deadline },
		message: "the deadline is over before the queue_timeout is", hint: "lower queue_timeout, or raise deadline",
	},
	{
		key:     "restart",
		applies: func(s settings) bool { return s.hasWork() && s.restart == RestartRetry && s.once() },
		message: "restart: retry has one attempt here, so work that is cut off is not started again",
		hint:    "add retry: {max_attempts: 3}, or write restart: fail",
	},
	{
		key:     "retry",
		applies: settings.retriesNothing,
		message: "retry has one attempt, so nothing is tried again", hint: "raise max_attempts, or add retry_for without it",
	},
	{
		key:     "retry",
		applies: func(s settings) bool { return s.hasWork() && s.Retry.For > 0 && s.shortestWait() > s.Retry.For },
		message: "retry_for is over before the first wait is", hint: "raise retry_for",
	},
	{
		key:     "retry",
		applies: func(s settings) bool { return s.hasWork() && s.meetsDeadline() && s.shortestWait() > s.Deadline },
		message: "the deadline is over before the first wait is", hint: "raise deadline, or lower initial",
	},
	{
		key: "retry.retry_for",
		applies: func(s settings) bool {
			return s.meetsDeadline() && s.Retry.For >= s.Deadline && s.Retry.MaxAttempts < UnboundedAttempts &&
				!s.retriesNothing()
		},
		message: "the deadline is over before retry_for is", hint: "lower retry_for, or raise deadline",
	},
	{
		key:     "retry.factor",
		applies: func(s settings) bool { return s.Retry.Factor > 1 && s.Retry.Cap == s.Retry.Initial },
		message: "no wait is longer than the first, because cap is as long as initial", hint: "raise cap, or leave factor out",
	},
	{
		key:     "retry.cap",
		applies: func(s settings) bool { return s.Retry.Factor == 1 && s.Retry.Cap > s.Retry.Initial },
		message: "with factor: 1 every wait is as long as initial, so cap has no effect", hint: "raise factor, or leave cap out",
	},
	{
		key: "crash_limit",
		applies: func(s settings) bool {
			return s.hasWork() && s.restart == RestartRetry && s.CrashLimit.Burst >= s.Retry.MaxAttempts
		},
		message: "with restart: retry the attempts are used up before this crash_limit",
		hint:    "lower burst, or raise max_attempts",
	},
	{
		key: "crash_limit",
		applies: func(s settings) bool {
			return s.hasWork() && s.restart == RestartFail && s.CrashLimit.Burst >= s.Retry.MaxAttempts
		},
		message: "with restart: fail the attempts are used up before this crash_limit",
		hint:    "lower burst, or raise max_attempts",
	},
	{
		key:     "exit_codes",
		applies: func(s settings) bool { return s.hasWork() && s.Work() != WorkRun && s.ExitCodes.hasNumber() },
		message: "only the command of a job without items ends with an exit code of its own",
		hint:    "name the error codes items_failed or handler_failed",
	},
	{
		key:     "exit_codes",
		applies: func(s settings) bool { return s.onlyRetryable() && s.once() },
		message: "retryable has no effect without retry", hint: "add retry: {max_attempts: 3}",
	},
	{
		key:     "exit_codes",
		applies: func(s settings) bool { return s.onlyRetryable() && !s.once() },
		message: "retryable changes nothing: where retry is given every failure is tried again",
		hint:    "name the failures that are not to be tried again in final",
	},
	{
		key: "exit_codes",
		applies: func(s settings) bool {
			codes := s.ExitCodes
			return s.ownExitCodes() && s.once() && codes.has(ClassFinal) && codes.classes["77"] != ClassFinal &&
				codes.classes["78"] != ClassFinal
		},
		message: "final has no effect without retry: there is one attempt", hint: "add retry: {max_attempts: 3}",
	},
	{
		key: "exit_codes", code: "timeout",
		applies: func(s settings) bool { return s.Timeout == 0 },
		message: "nothing fails with timeout here: there is no timeout", hint: "add timeout",
	},
	{
		key: "exit_codes", code: "stalled",
		applies: func(s settings) bool { return s.OnStall != StallRetry },
		message: "nothing fails with stalled here: that needs on_stall: retry", hint: "add stall_after and on_stall: retry",
	},
	{
		key: "exit_codes", code: "log_limit",
		applies: func(s settings) bool { return s.MaxLog == 0 },
		message: "nothing fails with log_limit here: the job has no max_log", hint: "add max_log to the job",
	},
	{
		key: "exit_codes", code: "items_failed",
		applies: func(s settings) bool { return s.Items == nil || s.FailWhen == FailNever && s.once() },
		message: "nothing fails with items_failed here: that needs items, and fail_when or retry",
		hint:    "add what is missing",
	},
	{
		key: "exit_codes", code: "handler_failed",
		applies: func(settings) bool { return true },
		message: "nothing fails with handler_failed here: there is no handler", hint: "name another error code",
	},
	{
		key: "exit_codes", code: "cut_off",
		applies: func(settings) bool { return true },
		message: "exit_codes has no effect on cut_off", hint: "use restart and crash_limit",
	},
	{
		key: "errors",
		applies: func(s settings) bool {
			for i, e := range s.step.Errors {
				same := func(other ErrorPattern) bool { return other.Match.String() == e.Match.String() }
				if slices.ContainsFunc(s.step.Errors[:i], same) {
					return true
				}
			}
			return false
		},
		message: "two errors have the same match: the second has no effect", hint: "leave one of them out",
	},
}

// noteIneffective adds a hint for each setting without effect.
func (j *jobDecoder) noteIneffective(s settings) {
	for _, row := range ineffective {
		k := s.at[row.key]
		if k == nil || row.code != "" && !s.classifies(row.code) || !row.applies(s) {
			continue
		}
		p := j.Position(k).Problem(row.hint, "%s", row.message)
		if !slices.ContainsFunc(j.def.hints, func(h *Problem) bool { return *h == *p }) {
			j.def.hints = append(j.def.hints, p)
		}
	}
}

// hasWork is false for a job with steps: its settings are the defaults of steps, which may have others.
func (s settings) hasWork() bool { return len(s.Steps) == 0 }

// hasItems reports whether items can fail: those of the job, of its handler or of one of its steps.
func (s settings) hasItems() bool {
	return s.Items != nil || s.Handler != "" || slices.ContainsFunc(s.Steps, func(step *Step) bool {
		return step.Work != nil && settings{Definition: step.Work}.hasItems()
	})
}

// meetsDeadline reports whether a deadline ends the work. An optional step may outlast it.
func (s settings) meetsDeadline() bool { return s.Deadline > 0 && (s.step == nil || !s.step.Optional) }

// once reports whether there is one attempt.
func (s settings) once() bool { return s.Retry.MaxAttempts == 1 }

// shortestWait is the shortest wait before the second attempt, 0 if there is none.
func (s settings) shortestWait() time.Duration {
	if s.retriesNothing() {
		return 0
	}
	return time.Duration(float64(s.Retry.Initial) * (1 - s.Retry.Jitter))
}

// retriesNothing reports whether retry allows one attempt, as without it. Failures of class warn are tried again
// nevertheless, and in a step it may be there to replace that of the job.
func (s settings) retriesNothing() bool {
	waits := s.Retry.Initial > 0 || s.Retry.For > 0
	return s.hasWork() && s.once() && (s.job == nil || s.job.Retry.MaxAttempts == 1) && !(waits && s.maySayWarn())
}

// maySayWarn reports whether a failure may have the class warn.
func (s settings) maySayWarn() bool {
	return s.Handler != "" || s.ExitCodes.has(ClassWarn) ||
		s.step != nil && slices.ContainsFunc(s.step.Errors, func(e ErrorPattern) bool { return e.Class == ClassWarn })
}

// ownExitCodes reports whether exit_codes replaces none of the job, which might have another class for a failure.
func (s settings) ownExitCodes() bool {
	return s.hasWork() && (s.job == nil || s.job.ExitCodes.classes == nil)
}

// onlyRetryable reports whether exit_codes names failures to be tried again, and none that are final.
func (s settings) onlyRetryable() bool {
	codes := s.ExitCodes
	return s.ownExitCodes() && !codes.shorthand && codes.has(ClassRetryable) && !codes.has(ClassFinal) &&
		(s.Work() == WorkRun || !codes.hasNumber())
}

// classifies reports whether exit_codes has an error code, which neither a handler nor an error pattern gives.
func (s settings) classifies(code string) bool {
	gives := func(e ErrorPattern) bool { return e.Code == code }
	return s.hasWork() && s.ExitCodes.classes[code] != "" && s.Handler == "" &&
		(s.step == nil || !slices.ContainsFunc(s.step.Errors, gives))
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
