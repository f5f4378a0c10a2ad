package statefs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Args are the arguments of a retry, skip, set, approve or reject: the JSON object on the second
// line of the request file, and the body of the HTTP request. All members are optional, except the
// values of a set.
type Args struct {
	// Step is the step that the request is for; "" is the current step. A retry of an earlier step
	// goes back to it.
	Step string `json:"step,omitempty"`
	// Run is the run that the requester saw; 0 is any. A request that names an older run is out of
	// date.
	Run int `json:"run,omitempty"`
	// By is the requester, Reason the reason.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Values are the values of a set, by "params.NAME" and "steps.NAME.outputs.NAME", each as JSON.
	Values map[string]json.RawMessage `json:"values,omitempty"`
	// Unnamed is set by an empty "by" in the object: the requester is unknown. Without a "by", the
	// requester is the owner of the file, which is the daemon's own user for requests that it
	// writes for clients.
	Unnamed bool `json:"-"`
}

// argsMembers are the members of [Args].
var argsMembers = []string{"step", "run", "by", "reason", "values"}

// The maximum lengths of free text in a request, in bytes.
const (
	MaxBy     = 128
	MaxReason = 2000
)

// ArgsError reports which member of a request is invalid, and why.
type ArgsError struct {
	Member string // "" for the object as a whole
	Why    string
}

func (e *ArgsError) Error() string {
	if e.Member == "" {
		return e.Why
	}
	return fmt.Sprintf("'%s': %s", e.Member, e.Why)
}

// ParseArgs decodes the arguments of a request; empty input is valid. The error is an [*ArgsError].
func ParseArgs(raw json.RawMessage) (Args, error) {
	var a Args
	var members map[string]json.RawMessage
	if raw = bytes.TrimSpace(raw); len(raw) == 0 {
		return a, nil
	}
	if json.Unmarshal(raw, &members) != nil || members == nil {
		return a, &ArgsError{Why: `it must be a JSON object, as {"step": "split", "reason": "why", "by": "anna"}`}
	}
	into := map[string]struct {
		value any
		kind  string
	}{
		"step": {&a.Step, "a text"}, "run": {&a.Run, "a whole number"}, "by": {&a.By, "a text"},
		"reason": {&a.Reason, "a text"},
		"values": {&a.Values, `an object, as {"params.path": "/srv/a"}`},
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		member, known := into[name]
		if !known {
			return a, &ArgsError{shorten(name), "there is no such member; known are " + strings.Join(argsMembers, ", ")}
		}
		if json.Unmarshal(members[name], member.value) != nil {
			return a, &ArgsError{name, shorten(string(members[name])) + " is not " + member.kind}
		}
	}
	_, said := members["by"]
	a.Unnamed = said && a.By == ""
	return a, a.check()
}

// Requester returns the name given in the arguments, or else the owner of the request file; "" if
// neither is known.
func (a *Args) Requester(owner string) string {
	if a.By == "" && !a.Unnamed {
		return owner
	}
	return a.By
}

func (a *Args) check() error {
	if a.Run < 0 {
		return &ArgsError{"run", "it is below zero"}
	}
	for _, text := range []struct {
		name, value string
		most        int
	}{{"by", a.By, MaxBy}, {"reason", a.Reason, MaxReason}} {
		switch {
		case len(text.value) > text.most:
			return &ArgsError{text.name, fmt.Sprintf("it is longer than %d bytes", text.most)}
		case !utf8.ValidString(text.value) || strings.ContainsFunc(text.value, unicode.IsControl):
			return &ArgsError{text.name, "it has a control character, or is not UTF-8 text"}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Values)) {
		if _, ok := ParseValueName(name); !ok {
			return &ArgsError{"values." + shorten(name), "a value is named params.NAME or steps.NAME.outputs.NAME"}
		}
	}
	return nil
}

// JSON encodes the arguments for a request file, nil if there are none. The error is an
// [*ArgsError].
func (a *Args) JSON() (json.RawMessage, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	object := struct {
		Step   string                     `json:"step,omitempty"`
		Run    int                        `json:"run,omitempty"`
		By     *string                    `json:"by,omitempty"`
		Reason string                     `json:"reason,omitempty"`
		Values map[string]json.RawMessage `json:"values,omitempty"`
	}{Step: a.Step, Run: a.Run, Reason: a.Reason, Values: a.Values}
	if a.By != "" || a.Unnamed {
		object.By = &a.By
	}
	data, err := json.Marshal(object)
	if err != nil {
		return nil, &ArgsError{Why: err.Error()}
	}
	if string(data) == "{}" {
		return nil, nil
	}
	return data, nil
}

// ValueName names a value that a person can set: a parameter, or an output of a step.
type ValueName struct{ Step, Name string }

// ParseValueName parses "params.NAME" and "steps.NAME.outputs.NAME".
func ParseValueName(text string) (ValueName, bool) {
	parts := strings.Split(text, ".")
	if slices.Contains(parts, "") {
		return ValueName{}, false
	}
	switch {
	case len(parts) == 2 && parts[0] == "params":
		return ValueName{Name: parts[1]}, true
	case len(parts) == 4 && parts[0] == "steps" && parts[2] == "outputs":
		return ValueName{Step: parts[1], Name: parts[3]}, true
	}
	return ValueName{}, false
}

func (n ValueName) String() string {
	if n.Step == "" {
		return "params." + n.Name
	}
	return "steps." + n.Step + ".outputs." + n.Name
}

// EffectiveParams returns Params with the corrections made since the submit. A parameter corrected
// to null is left out.
func (r *Record) EffectiveParams() (json.RawMessage, error) {
	if len(r.Corrected) == 0 {
		return r.Params, nil
	}
	members := make(map[string]json.RawMessage)
	if len(r.Params) > 0 {
		if err := json.Unmarshal(r.Params, &members); err != nil {
			return nil, fmt.Errorf("the parameters of %s: %w", r.ID, err)
		}
	}
	for name, value := range r.Corrected {
		if string(value) == "null" {
			delete(members, name)
			continue
		}
		members[name] = value
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(members); err != nil {
		return nil, fmt.Errorf("the parameters of %s: %w", r.ID, err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// UnblockRequested reports whether a request that ends the wait for a person is pending or being
// carried out.
func (j *jobsFolder) UnblockRequested(id ID) bool {
	return slices.ContainsFunc(requests[:], func(spec *ActionSpec) bool {
		return spec.unblocks() && j.RequestPending(id, spec.Action)
	})
}

func (s *ActionSpec) unblocks() bool { return s.moves(FailedManual) || s.moves(WaitingApproval) }

// RequestPending reports whether one of these requests is pending or being carried out.
func (j *jobsFolder) RequestPending(id ID, asks ...Action) bool {
	for _, ask := range asks {
		// Twice in jobs/: a starting daemon puts taken requests back.
		if j.Requested(id, ask) || j.isTaken(id, ask) || j.Requested(id, ask) {
			return true
		}
	}
	return false
}

// Requested reports whether a request file is in jobs/: the daemon has not taken it yet.
func (j *jobsFolder) Requested(id ID, ask Action) bool {
	_, err := j.jobs.Lstat(RequestName(id, ask))
	return err == nil
}

// HasTakenRequest reports whether the daemon is carrying out a request of an operation: its file is
// in taken/.
func (s *storage) HasTakenRequest(id ID) bool {
	return slices.ContainsFunc(Actions(), func(ask Action) bool { return s.isTaken(id, ask) })
}

// Cancelling returns the cancel requests of an operation that the daemon is carrying out. A cancel
// takes as long as the work needs to stop.
func (s *storage) Cancelling(id ID) (under []Action) {
	for _, ask := range []Action{Cancel, ForceCancel} {
		if s.isTaken(id, ask) {
			under = append(under, ask)
		}
	}
	return under
}

func (s *storage) isTaken(id ID, ask Action) bool {
	_, err := s.root.Lstat(path.Join(takenDir, RequestName(id, ask)))
	return err == nil
}
