package statefs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Args are the particulars of a retry, skip, set, approve or reject: the JSON object on the second line of the request, and the body of its
// endpoint. All of them may be left out, but for the values of a set.
type Args struct {
	// Step is the step that is meant; "" is the one at which the operation stands. A retry of an earlier one goes back to it.
	Step string `json:"step,omitempty"`
	// Run is the run of the operation that whoever asks has seen; 0 is any. A request that names an older one is out of date.
	Run int `json:"run,omitempty"`
	// By is who asks, Reason why.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Values are what a set gives, by "params.NAME" and "steps.NAME.outputs.NAME", each as JSON.
	Values map[string]json.RawMessage `json:"values,omitempty"`
	// Unnamed says that nobody knows who asks: an empty "by" in the object. Without a "by" it is the owner of the file; one that a daemon writes for a
	// client is its own.
	Unnamed bool `json:"-"`
}

// argsMembers are the members of [Args].
var argsMembers = []string{"step", "run", "by", "reason", "values"}

// The bounds of what people write in a request, in bytes.
const (
	MaxBy     = 128
	MaxReason = 2000
)

// ArgsError says which member of a request is wrong, and why.
type ArgsError struct {
	Member string // "" when the object as a whole is
	Why    string
}

func (e *ArgsError) Error() string {
	if e.Member == "" {
		return e.Why
	}
	return fmt.Sprintf("'%s': %s", e.Member, e.Why)
}

// ParseArgs reads the particulars of a request; none at all are no error. The error is an [*ArgsError].
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
		"step": {&a.Step, "a text"}, "run": {&a.Run, "a whole number"}, "by": {&a.By, "a text"}, "reason": {&a.Reason, "a text"},
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

// Asker is who asks: who the particulars name, or the owner of the file that they stand in; "" when nobody knows.
func (a *Args) Asker(owner string) string {
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

// JSON is the particulars as a request holds them, nil when there are none. The error is an [*ArgsError].
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

// ValueName names a value that a person can set: a parameter, or with a step an output of it.
type ValueName struct{ Step, Name string }

// ParseValueName reads "params.NAME" and "steps.NAME.outputs.NAME".
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

// ParamsNow is Params with what persons have corrected since the submit. One that was set to null is gone from it.
func (r *Record) ParamsNow() (json.RawMessage, error) {
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

// goesOn are the requests after which what waits for a person does not wait any more.
var goesOn = []Ask{Retry, Skip, Approve, Reject, Cancel}

// AskedToGoOn reports whether somebody has asked for what ends the wait for a person, and the daemon has not carried that out yet.
func (t *Tree) AskedToGoOn(id ID) bool {
	for _, ask := range goesOn {
		if t.Requested(id, ask) {
			return true
		}
		if _, err := t.root.Lstat(path.Join(takenDir, RequestName(id, ask))); err == nil {
			return true
		}
		if t.Requested(id, ask) {
			return true // a start puts what was taken back
		}
	}
	return false
}

// Requested reports whether a request stands in jobs/: the daemon has not taken it yet.
func (t *Tree) Requested(id ID, ask Ask) bool {
	_, err := t.jobs.Lstat(RequestName(id, ask))
	return err == nil
}

// TakenPath returns the path that a request has while the daemon carries it out. It is removed when the effect is durable, or there is none.
func (t *Tree) TakenPath(id ID, ask Ask) string {
	return filepath.Join(t.dir, takenDir, RequestName(id, ask))
}
