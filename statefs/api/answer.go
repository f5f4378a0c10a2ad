package api

import "github.com/jobdir/jobdir/statefs"

// Answer is the answer to a request about an operation.
type Answer struct {
	Success bool           `json:"success"`
	ID      statefs.ID     `json:"id"`
	Action  statefs.Action `json:"action"`
	Message string         `json:"message"`
	// Step is the affected step of an operation with steps.
	Step string `json:"step,omitempty"`
	// State and TookEffect are set after a wait, and when the request does not apply in the observed state.
	State      statefs.State `json:"state,omitempty"`
	TookEffect *bool         `json:"took_effect,omitempty"`
	// Changed points to false when the request would change nothing, because it does not apply in the state of the
	// operation. Then no request was written.
	Changed *bool `json:"changed,omitempty"`
	// Durable points to false when a pause, resume or cancel took effect within the wait, but the daemon could not make
	// it durable, as on a full disk: the work is stopped, goes on or has ended, and the daemon records that as soon as
	// it can.
	Durable *bool `json:"durable,omitempty"`
	// Pending means that the wait ended before the request was carried out.
	Pending bool `json:"pending,omitempty"`
	// Foreign means that another program owns the operation: the request is written, and that program has to act on it.
	// TookEffect is nil then, unless its marker shows the effect.
	Foreign bool `json:"foreign,omitempty"`
}

// InEffect reports whether the request took effect, or was a pause or cancel of an operation that was paused or
// cancelled already.
func (a *Answer) InEffect() bool {
	if a.TookEffect != nil && *a.TookEffect {
		return true
	}
	return a.Action == statefs.Pause && a.State == statefs.Paused || a.Action.Cancels() && a.State == statefs.Cancelled
}

// Pruned is the result of a prune.
type Pruned struct {
	Bytes  int64 `json:"bytes"`
	Count  int   `json:"count"`
	DryRun bool  `json:"dry_run"`
	// Operations are the first thousand pruned operations.
	Operations []PrunedOperation `json:"operations"`
}

// PrunedOperation is a pruned operation.
type PrunedOperation struct {
	ID statefs.ID `json:"id"`
	// Reason is age, count or bytes.
	Reason string `json:"reason"`
	Bytes  int64  `json:"bytes"`
}
