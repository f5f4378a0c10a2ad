package steps

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// Status is the status of a step.
type Status string

// The statuses of a step, each with what it means; docs/steps.md is made of these sentences.
const (
	// Pending: it has not begun, or begins again.
	Pending Status = "pending"
	// Running: it is at work; the record had this status before the work began.
	Running Status = "running"
	// Succeeded: it is done and never begins again, unless a person goes back.
	Succeeded Status = "succeeded"
	// FailedRetryable: it failed and is tried again by itself.
	FailedRetryable Status = "failed_retryable"
	// FailedManual: it failed and waits until a person acts.
	FailedManual Status = "failed_manual"
	// Skipped: it is left out; what needs it goes on.
	Skipped Status = "skipped"
)

var statuses = []Status{Pending, Running, Succeeded, FailedRetryable, FailedManual, Skipped}

// Statuses returns every status, in the order of a step's life.
func Statuses() []Status { return slices.Clone(statuses) }

// Done reports whether steps that need this one may go on.
func (s Status) Done() bool { return s == Succeeded || s == Skipped }

// Step is a step of an operation, as recorded.
type Step struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Optional steps never block, delay or fail the operation.
	Optional bool `json:"optional,omitempty"`
	// Run is the number of its last run; 0: it has not begun.
	Run int `json:"run,omitempty"`
	// Retries is how often it began again after a failure.
	Retries int `json:"retries"`
	// Attempts counts the failed attempts since the operation or a person last began it afresh.
	// DiedAt and Backoff are as in the record. The three are set for optional steps only; for the
	// current required step the record has them.
	Attempts int         `json:"attempts,omitempty"`
	DiedAt   []time.Time `json:"died_at,omitempty"`
	Backoff  int         `json:"backoff,omitempty"`

	StartedAt *time.Time `json:"started_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	// DueAt is when an optional failed_retryable step is retried; for the required step the record
	// has it.
	DueAt *time.Time `json:"due_at,omitempty"`

	// ItemsFrom is the first run whose item results count, 0 for all: after a person went back to
	// the step, all of it is done again. RedoFrom is the same for failed items, which are done
	// again when the step is.
	ItemsFrom int `json:"items_from,omitempty"`
	RedoFrom  int `json:"redo_from,omitempty"`

	// ErrorCode and ErrorMessage are the reason why its last attempt failed.
	ErrorCode    string `json:"error_code,omitempty"`
	ErrorMessage string `json:"error_message,omitempty"`
	// Reason is why it was skipped.
	Reason string `json:"reason,omitempty"`
	// Outputs are the values that later steps may use, by name, each as JSON.
	Outputs map[string]json.RawMessage `json:"outputs,omitempty"`
	// ApprovedBy and ApprovedAt are who approved its gate, and when.
	ApprovedBy string     `json:"approved_by,omitempty"`
	ApprovedAt *time.Time `json:"approved_at,omitempty"`

	// Lane replaces the lane of the operation while the step runs; Limits are taken in addition to
	// those of the operation.
	Lane   string   `json:"lane,omitempty"`
	Limits []string `json:"limits,omitempty"`

	// LogFrom and LogTo are where its last run begins and ends in its log, in bytes. Log is the
	// name of that file beside the log of the operation, "" for that log itself.
	LogFrom int64  `json:"log_from,omitempty"`
	LogTo   int64  `json:"log_to,omitempty"`
	Log     string `json:"log,omitempty"`
	// Earlier are its previous runs, the oldest first; at most the last fifty.
	Earlier []EarlierRun `json:"earlier,omitempty"`
}

// ActionRecord is an action of a person on a step or a value.
type ActionRecord struct {
	// Action is skip, set, approve, reject or retry.
	Action string `json:"ask"`
	Step   string `json:"step,omitempty"`
	By     string `json:"by,omitempty"`
	// At is when it was carried out, RequestedAt when it was requested: a request with the same
	// time is the same one, repeated after a crash.
	At          time.Time `json:"at"`
	RequestedAt time.Time `json:"asked_at"`
	// Reason is the reason that the person gave.
	Reason string `json:"reason,omitempty"`
	// Values are the values that were set, by reference: "params.NAME" and
	// "steps.NAME.outputs.NAME", each as JSON.
	Values map[string]json.RawMessage `json:"values,omitempty"`
}

// ConditionNotMet begins the reason of a step that its condition skipped.
const ConditionNotMet = "its condition does not hold: "

// SkippedByCondition reports whether the condition of the step skipped it, and not a person.
func (s *Step) SkippedByCondition() bool {
	return s.Status == Skipped && strings.HasPrefix(s.Reason, ConditionNotMet)
}

// Find returns the step with a name, nil if there is none.
func Find(list []Step, name string) *Step {
	return First(list, func(s *Step) bool { return s.Name == name })
}

// First returns the first element of a list for which is holds, nil if there is none. It points into the list.
func First[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// Clone copies a list, so that changes of the copy do not affect the original. The values of
// outputs are shared, because they are never modified.
func Clone(list []Step) []Step {
	out := slices.Clone(list)
	for i := range out {
		out[i].Outputs = maps.Clone(out[i].Outputs)
	}
	return out
}
