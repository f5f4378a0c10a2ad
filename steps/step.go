package steps

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// Status says where a step stands.
type Status string

// The statuses of a step.
const (
	// Pending has not begun, or begins again.
	Pending Status = "pending"
	// Running may have had effects: the record says so before the work begins.
	Running Status = "running"
	// Succeeded is done and never begins again, unless a person goes back to an earlier step.
	Succeeded Status = "succeeded"
	// FailedRetryable is tried again at a time.
	FailedRetryable Status = "failed_retryable"
	// FailedManual waits until a person acts.
	FailedManual Status = "failed_manual"
	// Skipped was left out, by a person or because its condition does not hold; what needs it goes on.
	Skipped Status = "skipped"
)

var statuses = []Status{Pending, Running, Succeeded, FailedRetryable, FailedManual, Skipped}

// Statuses returns every status, in the order of a step's life.
func Statuses() []Status { return slices.Clone(statuses) }

// Done reports whether what needs the step may go on.
func (s Status) Done() bool { return s == Succeeded || s == Skipped }

// Step is what the record of an operation says of one of its steps.
type Step struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Optional steps never block, delay or fail the operation.
	Optional bool `json:"optional,omitempty"`
	// Run is the number of the run that did it last; 0: it has not begun.
	Run int `json:"run,omitempty"`
	// Retries is how often it has begun again after it had failed.
	Retries int `json:"retries"`
	// Attempts are those that failed since it was last begun afresh, by the operation or by a person; Deaths are those of them in a row that
	// died without having finished an item. They are kept of optional steps; the record has those of the required step that is under way.
	Attempts int `json:"attempts,omitempty"`
	Deaths   int `json:"deaths,omitempty"`

	StartedAt *time.Time `json:"started_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	// DueAt is when an optional step that is failed_retryable is tried again; the record has that of the required one.
	DueAt *time.Time `json:"due_at,omitempty"`

	// ItemsFrom is the first run whose item results count, 0 for all: somebody went back to the step, and all of it is done again. RedoFrom is the same
	// for items that failed: they are done again when the step is.
	ItemsFrom int `json:"items_from,omitempty"`
	RedoFrom  int `json:"redo_from,omitempty"`

	// ErrorCode and ErrorMessage say why its last attempt failed.
	ErrorCode    string `json:"error_code,omitempty"`
	ErrorMessage string `json:"error_message,omitempty"`
	// Reason says why it was skipped.
	Reason string `json:"reason,omitempty"`
	// Outputs are the values that later steps may use, by name, each as JSON.
	Outputs map[string]json.RawMessage `json:"outputs,omitempty"`
	// ApprovedBy and ApprovedAt say who let the operation pass its gate, and when.
	ApprovedBy string     `json:"approved_by,omitempty"`
	ApprovedAt *time.Time `json:"approved_at,omitempty"`

	// Lane and Limits are what it takes for its time alone: Lane in place of that of the operation, Limits beside those of it.
	Lane   string   `json:"lane,omitempty"`
	Limits []string `json:"limits,omitempty"`

	// LogFrom and LogTo are where its last run begins and ends in its log, in bytes; Log is the name of that file beside the log of the operation,
	// "" for that log itself.
	LogFrom int64  `json:"log_from,omitempty"`
	LogTo   int64  `json:"log_to,omitempty"`
	Log     string `json:"log,omitempty"`
	// Earlier are its runs before that, the first one first: the last fifty of them.
	Earlier []EarlierRun `json:"earlier,omitempty"`
}

// Act is what a person did to a step or a value.
type Act struct {
	// Ask is skip, set, approve, reject or retry.
	Ask  string `json:"ask"`
	Step string `json:"step,omitempty"`
	By   string `json:"by,omitempty"`
	// At is when it was carried out, AskedAt when it was asked: a request of the same time is this one, which a crash has repeated.
	At      time.Time `json:"at"`
	AskedAt time.Time `json:"asked_at"`
	// Reason is what the person gave as one.
	Reason string `json:"reason,omitempty"`
	// Values are what was set, by the words of references: "params.NAME" and "steps.NAME.outputs.NAME", each as JSON.
	Values map[string]json.RawMessage `json:"values,omitempty"`
}

// Find returns the step of a name, nil when there is none.
func Find(list []Step, name string) *Step {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// Clone copies a list, so that what is changed in the copy is not in the original. The values of outputs are shared: nobody changes them.
func Clone(list []Step) []Step {
	out := slices.Clone(list)
	for i := range out {
		out[i].Outputs = maps.Clone(out[i].Outputs)
	}
	return out
}
