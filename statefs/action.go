package statefs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Action is what a person can do to an operation, such as pause it. Most actions are requests: files
// ID.{action}_requested that the daemon carries out.
type Action string

// The actions. What each means is a row of the tables below.
const (
	Pause  Action = "pause"
	Resume Action = "resume"
	Cancel Action = "cancel"
	// ForceCancel cancels and sends SIGKILL at once, even while an earlier cancel waits for its
	// grace period.
	ForceCancel Action = "force_cancel"
	Retry       Action = "retry"
	Skip        Action = "skip"
	Set         Action = "set"
	Approve     Action = "approve"
	Reject      Action = "reject"
	// Prioritize changes the place in the queue: {"priority": N}, or ahead of the whole lane
	// without arguments.
	Prioritize Action = "prioritize"

	// Delete and Pin are carried out by their endpoints; they have no request file.
	Delete Action = "delete"
	Pin    Action = "pin"
)

// ActionSpec says everything about one action. File names, endpoints, the lists of actions, commands
// with their help, the buttons of the page and the table in docs/http-control.md are made from these rows.
// A new request is one row here, the rows of its causes in transition.go, and its handler in the
// daemon.
type ActionSpec struct {
	Action Action
	// Opposite is the pending request that a new one replaces: the last request wins.
	Opposite Action
	// Causes are the causes of the transitions that it makes; it applies in the states that they
	// leave. States are the states in which it applies without a transition.
	Causes []Cause
	States []State
	// OnEnded means that it also applies to an operation that has ended.
	OnEnded bool
	// OnStep means that it acts on a step, and has [Args] as its arguments. NeedsSteps means that an
	// operation without steps has no use for it.
	OnStep, NeedsSteps bool
	// Params are the arguments of an action that does not act on a step.
	Params []ActionParam
	// Force is the action that the parameter force makes of it.
	Force Action

	// Effect says when a request has taken effect, for people. Ends means that it takes effect exactly
	// when the operation has ended.
	Effect string
	Ends   bool

	// Control means that GET /{group}/control takes it, and Bulk that it can be applied to all
	// operations that match a filter.
	Control, Bulk bool
	// Endpoint is the summary of its endpoint.
	Endpoint string
	// Short, Long and Example are the help of its command; without a Short text it has no command.
	Short, Long, Example string
	Buttons              []Button
}

// ActionParam is a whole number that a request can have: a query parameter of the endpoint, a flag
// of the command, a field on the page and a member of the object in the request file.
type ActionParam struct {
	Name  string `json:"name"`
	Most  int    `json:"-"` // the least is -Most
	About string `json:"-"`
	Flag  string `json:"-"`    // about the flag of the command
	Hint  string `json:"hint"` // about the field on the page
}

// Button is a button of the page. With a Title it asks before it makes the request. In the texts of
// the question {op} is the operation, {step} the step that waits for a person, and {priority} the
// priority.
type Button struct {
	Name string `json:"name"` // "" for that of the action
	Text string `json:"text"`
	// Rank is its place among the buttons of an operation, the lowest first.
	Rank   int  `json:"rank"`
	Main   bool `json:"main,omitempty"`
	Danger bool `json:"danger,omitempty"`
	// Pane means that it is shown where the operation is open, and not in a list.
	Pane bool `json:"pane,omitempty"`
	// States are the states in which it is shown; nil for those of the action.
	States []State `json:"states"`
	// Instead is the action whose button it replaces while a request for that is pending.
	Instead Action          `json:"instead,omitempty"`
	Query   map[string]bool `json:"query,omitempty"`

	Title string `json:"title,omitempty"`
	About string `json:"about,omitempty"`
	// Trailing is About for an operation that has its result while optional steps go on.
	Trailing string `json:"trailing,omitempty"`
	Confirm  string `json:"confirm,omitempty"`
	// Reason means that it also asks for a reason.
	Reason bool `json:"reason,omitempty"`
}

// requests are the actions that have a request file, in the order of lists.
var requests = [...]*ActionSpec{
	{
		Action: Pause, Opposite: Resume, Causes: []Cause{CausePause},
		Effect:  "its marker is `paused`: nothing of it moves",
		Control: true, Bulk: true, Endpoint: "Pause an operation", Short: "Stop operations where they are, until they are resumed",
		Buttons: []Button{{Text: "Pause", Rank: 5}},
	},
	{
		Action: Resume, Opposite: Pause, Causes: []Cause{CauseResume, CauseRelease, CauseNotYet},
		Effect:  "its marker is `paused` no longer, and its work goes on",
		Control: true, Bulk: true, Endpoint: "Resume an operation", Short: "Resume paused operations",
		Buttons: []Button{{Text: "Resume", Rank: 4, Main: true}},
	},
	{
		Action: Cancel, Causes: []Cause{CauseCancel}, Force: ForceCancel,
		Effect: effectOfCancel, Ends: true,
		Control: true, Bulk: true, Endpoint: "Cancel an operation", Short: "End operations for good",
		Buttons: []Button{{
			Text: "Cancel", Rank: 9, Danger: true,
			Title: "Cancel {op}?", About: "What is at work is ended, and it does not start again by itself.",
			Trailing: "Its result stands; the optional steps that are still at work are ended.",
			Confirm:  "Cancel the operation",
		}},
	},
	{
		Action: ForceCancel, Causes: []Cause{CauseCancel},
		Effect: effectOfCancel, Ends: true,
		Buttons: []Button{{
			Name: "force", Text: "Force cancel", Rank: 9, Danger: true, Instead: Cancel, Query: map[string]bool{"force": true},
			Title: "Force the cancel of {op}?", About: "Its processes are killed at once and cannot tidy up.",
			Confirm: "Kill its processes",
		}},
	},
	{
		Action: Retry, Causes: []Cause{CauseRetry}, OnEnded: true, OnStep: true,
		Effect:  "it is `queued` again, or its optional step is to be done again",
		Control: true, Bulk: true,
		Endpoint: "Start an operation again: a live operation that waits for a person, or a new operation that inherits what an ended one finished",
		Short:    "Start operations again that failed, were cancelled or were only partly successful",
		Long: `retry starts an operation again that waits for a person. Of an ended operation it makes a new one,
whose ID it prints: it inherits the items that succeeded and repeats the others. An operation with steps continues at
the step that failed or was not done; with --step it goes back to an earlier one: that step and all that need it run
again.

With --wait it returns when they have ended, with the exit code of 'jobdir wait'; with --wait=1h at most after that
time, with 75.

Instead of IDs a filter chooses operations that did not succeed: the command prints how many match, and requires
a confirmation. That needs a daemon.`,
		Example: "  jobdir retry r42 --step split\n  jobdir retry --status failed --job media/decode --since 1d",
		Buttons: []Button{
			{Text: "Retry", Rank: 3, Main: true},
			{Name: "again", Text: "Retry", Rank: 10, States: terminalStates},
			{
				Name: "items", Text: "Retry failed items", Rank: 11, Pane: true, States: terminalStates,
				Query: map[string]bool{"failed_items": true},
			},
		},
	},
	{
		Action: Skip, Causes: []Cause{CauseSkip}, OnStep: true, NeedsSteps: true,
		Effect:  "the step is `skipped`, and the operation goes on",
		Control: true, Endpoint: "Go on without a step that has failed, or waits for an approval",
		Short: "Skip a step that failed or waits for an approval",
		Long:  "skip continues an operation without its current step.",
		Buttons: []Button{{
			Text: "Skip step", Rank: 6,
			Title: "Skip step {step}?", About: "The operation goes on without it.", Confirm: "Skip the step", Reason: true,
		}},
	},
	{
		Action: Set, States: []State{WaitingApproval, FailedRetryable, FailedManual}, OnStep: true, NeedsSteps: true,
		Effect:   "the record has the values",
		Endpoint: "Correct parameters, or outputs of steps, for the next try",
		Short:    "Correct values of an operation that waits for a person",
		Long: `set corrects parameters (params.NAME=VALUE) and outputs of steps (steps.STEP.outputs.NAME=VALUE) of an
operation with steps that waits for a person or for its next attempt. They count from the next attempt on, which
'jobdir retry' starts. A parameter has the type that the job declares; an output is JSON, and any other value is a
text.

The record keeps who set what, when and why. Without a daemon the request waits on disk for the next one.`,
		Example: "  jobdir set r42 params.path=/srv/other.mkv --reason 'moved'\n  jobdir set r42 steps.split.outputs.count=3",
		Buttons: []Button{{Text: "Set", Rank: 7, Pane: true}},
	},
	{
		Action: Approve, Opposite: Reject, Causes: []Cause{CauseApprove}, OnStep: true, NeedsSteps: true,
		Effect:  "the step is approved, and the operation goes on",
		Control: true, Endpoint: "Let an operation go on that waits for an approval", Short: "Approve operations that wait for an approval",
		Long:    "approve continues an operation that is waiting_approval.",
		Buttons: []Button{{Text: "Approve", Rank: 1, Main: true}},
	},
	{
		Action: Reject, Opposite: Approve, Causes: []Cause{CauseReject}, OnStep: true, NeedsSteps: true,
		Effect: "it has ended as `failed`, with the error code `rejected`", Ends: true,
		Control: true, Endpoint: "End an operation that waits for an approval", Short: "End operations that wait for an approval",
		Long: "reject ends an operation that is waiting_approval: it has failed then, and 'jobdir retry' does it again from there.",
		Buttons: []Button{{
			Text: "Reject", Rank: 2, Danger: true,
			Title: "Reject {op}?", About: "The operation ends as failed.", Confirm: "Reject", Reason: true,
		}},
	},
	{
		Action: Prioritize,
		States: []State{Scheduled, Queued, Paused, WaitingApproval, FailedRetryable, FailedManual},
		Params: []ActionParam{{
			Name: "priority", Most: MaxPriority,
			About: "higher ones start first; without it the operation goes before all others of its lane",
			Flag:  "the priority; without it the first place in the lane",
			Hint:  "A whole number; empty puts it before all others of its lane.",
		}},
		Effect:   "the record has the priority, and the queue goes by it",
		Endpoint: "Change the place of a waiting operation in its lane", Short: "Let waiting operations start earlier",
		Long: `prioritize puts operations before all others that wait in their lane, or with --priority gives them a
priority: higher ones start first, and 0 is the default. Running operations are not affected. Without a daemon the
request waits on disk for the next one.`,
		Buttons: []Button{{
			Name: "priority", Text: "Priority", Rank: 8, Pane: true, States: []State{Scheduled, Queued, Paused, FailedRetryable},
			Title: "Priority of {op}", About: "It is {priority} now. Higher ones start first.", Confirm: "Set the priority",
		}},
	},
}

// direct are the actions without a request file.
var direct = [...]*ActionSpec{
	{
		Action: Delete, States: terminalStates, OnEnded: true, Bulk: true,
		Endpoint: "Delete an operation that has ended, with its log and its files",
		Short:    "Delete operations that have ended, with their logs and files",
		Long: `delete removes operations that have ended: by ID, or all that match a filter, after a confirmation. It keeps an
operation that is live or pinned, that another one retries, that a live one comes after, or whose result is still to
be delivered, and prints the reason. It needs a daemon.`,
		Example: "  jobdir delete --status failed --job media/decode --until 7d",
		Buttons: []Button{{
			Text: "Delete", Rank: 14, Danger: true, Pane: true,
			Title: "Delete {op}?", About: "Its record, its log and its files are removed for ever.", Confirm: "Delete it",
		}},
	},
	{
		Action: Pin, States: terminalStates, OnEnded: true,
		Endpoint: "Keep an operation from being pruned and deleted, or end that",
		Buttons: []Button{
			{Text: "Pin", Rank: 12, Pane: true, Query: map[string]bool{"pinned": true}},
			{Name: "unpin", Text: "Unpin", Rank: 13, Pane: true, Query: map[string]bool{"pinned": false}},
		},
	},
}

// MaxPriority is the highest priority; the lowest is -MaxPriority.
const MaxPriority = 1_000_000

const effectOfCancel = "it has ended as `cancelled`; a `trailing` operation as `completed`, without the rest of its optional steps"

var specs = slices.Concat(requests[:], direct[:])

// ActionSpecs returns the specs of all actions, the requests first. They must not be changed.
func ActionSpecs() []*ActionSpec { return specs }

// Actions returns every kind of request.
func Actions() (list []Action) {
	for _, spec := range requests {
		list = append(list, spec.Action)
	}
	return list
}

// Spec returns the spec of an action, which must not be changed; the zero value for an unknown one.
func (a Action) Spec() *ActionSpec {
	if i := a.indexIn(specs); i >= 0 {
		return specs[i]
	}
	return &ActionSpec{Action: a}
}

func (a Action) indexIn(list []*ActionSpec) int {
	return slices.IndexFunc(list, func(spec *ActionSpec) bool { return spec.Action == a })
}

// Label is the name for people: "force cancel".
func (a Action) Label() string { return strings.ReplaceAll(string(a), "_", " ") }

// Title is the label at the beginning of a sentence: "Force cancel".
func (a Action) Title() string { return strings.ToUpper(string(a[:1])) + a.Label()[1:] }

// Requested is the answer to a request: "Pause requested for operation 'ID'".
func (a Action) Requested(id ID) string {
	return a.Title() + " requested for operation '" + id.String() + "'"
}

// Unchanged says that a request changes nothing in the state of an operation; see [Action.AppliesIn].
func (a Action) Unchanged(id ID, state State) string {
	if a == Pause && state == Paused || a == Resume && state == Running {
		return fmt.Sprintf("Operation '%s' is already %s", id, state)
	}
	return fmt.Sprintf("Operation '%s' is %s: a %s changes nothing", id, state, a.Label())
}

// Cancels reports whether the action ends the operation, whatever other requests exist.
func (a Action) Cancels() bool { return a == Cancel || a == ForceCancel }

// AppliesIn reports whether the action can change an operation in a state, judging by the state
// alone.
func (a Action) AppliesIn(state State) bool {
	return slices.Contains(a.Spec().States, state) || a.Spec().moves(state)
}

// moves reports whether the action makes a transition from a state.
func (s *ActionSpec) moves(from State) bool {
	return slices.ContainsFunc(transitions, func(t Transition) bool {
		return t.From == from && slices.Contains(s.Causes, t.Cause)
	})
}

// LeadsTo reports whether the action makes a transition to a state.
func (a Action) LeadsTo(state State) bool {
	return slices.ContainsFunc(transitions, func(t Transition) bool {
		return t.To == state && slices.Contains(a.Spec().Causes, t.Cause)
	})
}

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

func (s *ActionSpec) unblocks() bool { return s.moves(FailedManual) || s.moves(WaitingApproval) }
