package steps

import "time"

// View is a step as it is shown: what the record says, and what its job and the clock add.
type View struct {
	// Number is its place among the steps of the operation, from 1.
	Number int `json:"number"`
	Step
	// Needs are the steps that are done before it begins; Approve says that a person has to approve before.
	Needs   []string `json:"needs,omitempty"`
	Approve bool     `json:"approve,omitempty"`
	// Seconds is how long its last run took, or has taken until now; nil when it has not begun.
	Seconds *float64 `json:"duration_seconds,omitempty"`
}

// Views shows the steps of an operation in their order. graph may be nil, when the definition of the job cannot be read.
func Views(list []Step, graph Graph, now time.Time) []View {
	var views []View
	for i := range list {
		v := View{Number: i + 1, Step: list[i]}
		if node := graph.Find(v.Name); node != nil {
			v.Needs, v.Approve = node.Needs, node.Approve
		}
		if took, begun := v.Took(now); begun {
			seconds := took.Seconds()
			v.Seconds = &seconds
		}
		views = append(views, v)
	}
	return views
}

// Took is how long the last run of a step took, or has taken until now; false when it has not begun, was skipped, or nobody noted when it ended. A time in
// which the clock went back counts as none.
func (s *Step) Took(now time.Time) (took time.Duration, begun bool) {
	switch {
	case s.StartedAt == nil, s.Status == Skipped: // which ended when it was skipped, and not when its work did
		return 0, false
	case s.Status == Running:
		return max(now.Sub(*s.StartedAt), 0), true
	case s.EndedAt != nil:
		return max(s.EndedAt.Sub(*s.StartedAt), 0), true
	}
	return 0, false
}

// Output is where the output of the last run of a step begins and ends in its log, which is size bytes long now. It is empty when the step has
// not begun.
func (s *Step) Output(size int64) (from, to int64) {
	if s.StartedAt == nil {
		return 0, 0
	}
	from, to = min(max(s.LogFrom, 0), size), size
	if s.Status != Running {
		to = min(max(s.LogTo, from), size)
	}
	return from, to
}

// Settled is a list of steps for an operation that does again what another one has not done: what is done stays so, with its outputs; all others
// begin afresh.
func Settled(list []Step) []Step {
	out := Clone(list)
	for i := range out {
		s := &out[i]
		if !s.Status.Done() {
			*s = Step{Name: s.Name, Status: Pending, Optional: s.Optional, Lane: s.Lane, Limits: s.Limits}
		}
		s.NewHere()
	}
	return out
}
