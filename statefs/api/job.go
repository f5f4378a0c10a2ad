package api

import (
	"encoding/json"
	"slices"
)

// Jobs are the jobs of a daemon, and what is wrong with their files.
type Jobs struct {
	// Count is the number of Jobs.
	Count int `json:"count"`
	// Jobs have no Steps, Milestones and Definition.
	Jobs []Job `json:"jobs"`
	// Problems is a list of the mistakes in the files, as jobdir validate --json prints them.
	Problems any `json:"problems"`
}

// Job is a job definition as the daemon describes it.
type Job struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	// Endpoint is GROUP-NAME, the beginning of the IDs of its operations; Path is where it is started.
	Endpoint string   `json:"endpoint"`
	Path     string   `json:"path"`
	Summary  string   `json:"summary,omitempty"`
	Params   []Param  `json:"params"`
	Tags     []string `json:"tags,omitempty"`
	// Work is run, items, handler or steps.
	Work string `json:"work"`
	// OnDisconnect is what happens when the starting connection ends: continue, cancel or pause.
	OnDisconnect string `json:"on_disconnect,omitempty"`
	// Steps are in the order of execution, Milestones as in the job's file. Both are empty in the result of Jobs.
	Steps      []JobStep      `json:"steps,omitempty"`
	Milestones []JobMilestone `json:"milestones,omitempty"`
	// Definition is the text of the definition; empty in the result of Jobs.
	Definition string `json:"definition,omitempty"`

	// Raw is the whole JSON object that the daemon sent.
	Raw json.RawMessage `json:"-"`
}

// Param is a parameter of a job.
type Param struct {
	Name string `json:"name"`
	// Type is string, integer, number, boolean, object or array.
	Type     string          `json:"type"`
	Required bool            `json:"required,omitempty"`
	Default  json.RawMessage `json:"default,omitempty"`
	// Minimum and Maximum are inclusive.
	Minimum json.RawMessage `json:"minimum,omitempty"`
	Maximum json.RawMessage `json:"maximum,omitempty"`
	// Enum lists the allowed values; empty: all.
	Enum []json.RawMessage `json:"enum,omitempty"`
	// Pattern is an RE2 expression that the whole of a string must match, after Normalize.
	Pattern   string   `json:"pattern,omitempty"`
	Normalize []string `json:"normalize,omitempty"`
	Summary   string   `json:"summary,omitempty"`
}

// JobStep is a step as its job defines it.
type JobStep struct {
	Name    string `json:"name"`
	Summary string `json:"summary,omitempty"`
	// Needs are the steps that must be done before this one begins.
	Needs []string `json:"needs,omitempty"`
	// Work is run, items or handler; gate for a step that only waits for an approval.
	Work string `json:"work"`
	// Optional steps run beside and after the others, and their failure fails nothing. Approve steps wait for approval
	// before they begin.
	Optional bool `json:"optional,omitempty"`
	Approve  bool `json:"approve,omitempty"`
	// When is the condition without which the step is skipped, "" if it has none.
	When string `json:"when,omitempty"`
	// Milestone is the phase of the operation after this step.
	Milestone string   `json:"milestone,omitempty"`
	Outputs   []string `json:"outputs,omitempty"`
	// Lane and Limits are the resources that the step takes while it runs.
	Lane   string   `json:"lane,omitempty"`
	Limits []string `json:"limits,omitempty"`
}

// JobMilestone is a phase that the operation reaches when all of these steps are done.
type JobMilestone struct {
	Name  string   `json:"name"`
	Steps []string `json:"steps"`
}

// Address returns group/name.
func (j *Job) Address() string { return j.Group + "/" + j.Name }

// UnmarshalJSON implements json.Unmarshaler and keeps the whole object in Raw.
func (j *Job) UnmarshalJSON(data []byte) error {
	type plain Job
	j.Raw = slices.Clone(data)
	return json.Unmarshal(data, (*plain)(j))
}
