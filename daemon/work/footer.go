package work

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// footerNames are the footer members that the daemon writes; the work cannot set them.
var footerNames = map[string]bool{
	"result": true, "state": true, "total": true, "processed": true, "failed": true, "processed_files": true,
	"failed_files": true, "error": true, "exit_code": true, "signal": true, "items": true, "artifacts": true,
	"id": true, retryMember: true,
}

// stepsMember is the footer member for the steps. The work of a job without steps may set it.
const stepsMember = "steps"

// Footer builds the footer of an operation that ends: the members of every footer, the error, the
// result of the work, and last the two lists, because they are long.
func (r *Report) Footer(rec *statefs.Record, itemsFile string) json.RawMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	fields := []field{
		member("result", rec.Result), member("state", rec.Status), member("total", total(rec, r)),
		member("processed", r.processed), member("failed", r.failed),
	}
	if rec.Error != nil {
		fields = append(fields, member("error", rec.Error))
	}
	if rec.ExitCode != nil {
		fields = append(fields, member("exit_code", rec.ExitCode))
	}
	if rec.Signal != "" {
		fields = append(fields, member("signal", rec.Signal))
	}
	for _, f := range r.result {
		if !footerNames[f.name] && (f.name != stepsMember || len(rec.Steps) == 0) {
			fields = append(fields, f)
		}
	}
	if len(rec.Steps) > 0 {
		fields = append(fields, field{stepsMember, stepsField(rec.Steps)})
	}
	if len(rec.Artifacts) > 0 {
		fields = append(fields, member("artifacts", rec.Artifacts))
	}
	if r.processed > maxListed || r.failed > maxListed {
		fields = append(fields, member("items", itemsFile))
	}
	return object(append(fields, field{"processed_files", list(r.processedList)},
		field{"failed_files", list(r.failedList)}))
}

// ReturnedOnly restricts the members of a result to members that the work returned and the footer
// contains.
func ReturnedOnly(rec *statefs.Record, member func(string) (json.RawMessage,
	bool),
) func(string) (json.RawMessage, bool) {
	return func(name string) (json.RawMessage, bool) {
		if footerNames[name] || name == stepsMember && len(rec.Steps) > 0 {
			return nil, false
		}
		return member(name)
	}
}

// MemberOf returns a lookup of the members of a footer.
func MemberOf(footer json.RawMessage) func(string) (json.RawMessage, bool) {
	var members map[string]json.RawMessage
	return func(name string) (json.RawMessage, bool) {
		if members == nil && json.Unmarshal(footer, &members) != nil {
			return nil, false
		}
		value, ok := members[name]
		return value, ok
	}
}

// total returns the number of items, or else the total of the progress; nil means unknown. For an
// operation with steps it is the number of required steps, as in its progress.
func total(rec *statefs.Record, r *Report) *int64 {
	switch {
	case len(rec.Steps) > 0:
		_, all := steps.Progress(rec.Steps)
		return new(int64(all))
	case r.total == nil && rec.Progress != nil:
		return rec.Progress.Total
	}
	return r.total
}

func list(entries [][]byte) json.RawMessage {
	return slices.Concat([]byte("["), bytes.Join(entries, []byte(",")), []byte("]"))
}

// footerStep is what the footer contains of a step.
type footerStep struct {
	Status       steps.Status               `json:"status"`
	Seconds      *float64                   `json:"seconds,omitempty"` // to a millisecond
	Retries      int                        `json:"retries,omitempty"`
	Optional     bool                       `json:"optional,omitempty"`
	ErrorCode    string                     `json:"error_code,omitempty"`
	ErrorMessage string                     `json:"error_message,omitempty"`
	Reason       string                     `json:"reason,omitempty"`
	Outputs      map[string]json.RawMessage `json:"outputs,omitempty"`
}

// stepsField is the member of the footer with the status of each step.
func stepsField(list []steps.Step) json.RawMessage {
	fields := make([]field, 0, len(list))
	for i := range list {
		s := &list[i]
		entry := footerStep{
			Status: s.Status, Retries: s.Retries, Optional: s.Optional, ErrorCode: s.ErrorCode,
			ErrorMessage: s.ErrorMessage, Reason: s.Reason, Outputs: s.Outputs,
		}
		if s.StartedAt != nil && s.EndedAt != nil {
			entry.Seconds = new(float64(max(s.EndedAt.Sub(*s.StartedAt), 0).Milliseconds()) / 1000)
		}
		fields = append(fields, member(s.Name, entry))
	}
	return object(fields)
}
