package daemon

import (
	"encoding/json"

	"github.com/jobdir/jobdir/statefs"
)

// footerNames are the members of the footer that the daemon writes; the work cannot set them.
var footerNames = map[string]bool{
	"result": true, "state": true, "total": true, "processed": true, "failed": true, "processed_files": true,
	"failed_files": true, "error": true, "exit_code": true, "signal": true, "items": true, "artifacts": true, "id": true, retryMember: true,
}

// stepsMember is the member for the steps, of jobs that have some; the work of others may set it.
const stepsMember = "steps"

// footer builds the footer of an operation that ends: what every footer has, why it failed where it did, what the work returned,
// and the two lists last, because they are long.
func footer(rec *statefs.Record, r *report, itemsFile string) json.RawMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	fields := []field{
		text("result", string(rec.Result)), text("state", string(rec.Status)),
		{"total", total(r)},
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
	if r.processed > listed || r.failed > listed {
		fields = append(fields, text("items", itemsFile))
	}
	return object(append(fields, field{"processed_files", list(r.processedList)}, field{"failed_files", list(r.failedList)}))
}

// returnedOnly narrows members of a result down to those that the work has returned and the footer has.
func returnedOnly(rec *statefs.Record, member func(string) (json.RawMessage, bool)) func(string) (json.RawMessage, bool) {
	return func(name string) (json.RawMessage, bool) {
		if footerNames[name] || name == stepsMember && len(rec.Steps) > 0 {
			return nil, false
		}
		return member(name)
	}
}

// memberOf gives the members of a footer.
func memberOf(footer json.RawMessage) func(string) (json.RawMessage, bool) {
	var members map[string]json.RawMessage
	return func(name string) (json.RawMessage, bool) {
		if members == nil && json.Unmarshal(footer, &members) != nil {
			return nil, false
		}
		value, ok := members[name]
		return value, ok
	}
}

func total(r *report) json.RawMessage {
	if r.total == nil {
		return json.RawMessage("null")
	}
	return integer("", *r.total).value
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
