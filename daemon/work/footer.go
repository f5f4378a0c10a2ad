package work

import (
	"encoding/json"
	"time"

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
		text("result", string(rec.Result)), text("state", string(rec.Status)),
		{"total", total(rec, r)},
		integer("processed", int64(r.processed)), integer("failed", int64(r.failed)),
	}
	if rec.Error != nil {
		if f, err := newField("error", rec.Error); err == nil {
			fields = append(fields, f)
		}
	}
	if rec.ExitCode != nil {
		fields = append(fields, integer("exit_code", int64(*rec.ExitCode)))
	}
	if rec.Signal != "" {
		fields = append(fields, text("signal", rec.Signal))
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
		if f, err := newField("artifacts", rec.Artifacts); err == nil {
			fields = append(fields, f)
		}
	}
	if r.processed > maxListed || r.failed > maxListed {
		fields = append(fields, text("items", itemsFile))
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

// total returns the number of items, or else the total of the progress. For an operation with steps
// it is the number of required steps, as in its progress.
func total(rec *statefs.Record, r *Report) json.RawMessage {
	n := r.total
	switch {
	case len(rec.Steps) > 0:
		_, all := steps.Progress(rec.Steps)
		n = new(int64(all))
	case n == nil && rec.Progress != nil:
		n = rec.Progress.Total
	}
	if n == nil {
		return json.RawMessage("null")
	}
	return integer("", *n).value
}

func list(entries []json.RawMessage) json.RawMessage {
	out := []byte{'['}
	for i, entry := range entries {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, entry...)
	}
	return append(out, ']')
}

// stepsField is the member of the footer with the status of each step.
func stepsField(list []steps.Step) json.RawMessage {
	fields := make([]field, 0, len(list))
	for i := range list {
		s := &list[i]
		entry := []field{text("status", string(s.Status))}
		if s.StartedAt != nil && s.EndedAt != nil {
			if f, err := newField("seconds", seconds(s.EndedAt.Sub(*s.StartedAt))); err == nil {
				entry = append(entry, f)
			}
		}
		if s.Retries > 0 {
			entry = append(entry, integer("retries", int64(s.Retries)))
		}
		if s.Optional {
			entry = append(entry, field{"optional", json.RawMessage("true")})
		}
		for _, f := range []field{
			text("error_code", s.ErrorCode), text("error_message", s.ErrorMessage),
			text("reason", s.Reason),
		} {
			if len(f.value) > len(`""`) {
				entry = append(entry, f)
			}
		}
		if len(s.Outputs) > 0 {
			if f, err := newField("outputs", s.Outputs); err == nil {
				entry = append(entry, f)
			}
		}
		fields = append(fields, field{s.Name, object(entry)})
	}
	return object(fields)
}

// seconds returns d in seconds, to a millisecond.
func seconds(d time.Duration) float64 { return float64(max(d, 0).Milliseconds()) / 1000 }
