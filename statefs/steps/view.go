package steps

import "time"

// View is a step for display: the record, with additions from the job and the clock.
type View struct {
	// Number is its position among the steps of the operation, from 1.
	Number int `json:"number"`
	Step
	// Needs are the steps that must be done before it begins; Approve means that a person must
	// approve first.
	Needs   []string `json:"needs,omitempty"`
	Approve bool     `json:"approve,omitempty"`
	// Seconds is the duration of its last run, up to now if it is still running; nil if it has not
	// begun.
	Seconds *float64 `json:"duration_seconds,omitempty"`
}

// Views returns the views of an operation's steps in their order. graph may be nil if the
// definition of the job cannot be read.
func Views(list []Step, graph Graph, now time.Time) []View {
	var views []View
	for i := range list {
		v := View{Number: i + 1, Step: list[i]}
		if node := graph.Find(v.Name); node != nil {
			v.Needs, v.Approve = node.Needs, node.Approve
		}
		if took, begun := v.Duration(now); begun {
			seconds := took.Seconds()
			v.Seconds = &seconds
		}
		views = append(views, v)
	}
	return views
}

// Duration returns the duration of a step's last run, up to now if it is still running. It returns
// false if the step has not begun, was skipped, or its end was not recorded. A negative duration
// counts as zero.
func (s *Step) Duration(now time.Time) (took time.Duration, begun bool) {
	switch {
	case s.StartedAt == nil, s.Status == Skipped: // it ended when it was skipped, not when its work did
		return 0, false
	case s.Status == Running:
		return max(now.Sub(*s.StartedAt), 0), true
	case s.EndedAt != nil:
		return max(s.EndedAt.Sub(*s.StartedAt), 0), true
	}
	return 0, false
}

// Output returns where the output of a step's last run begins and ends in its log, which is size
// bytes long now. It is empty if the step has not begun.
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

// CarryOver returns the steps for an operation that repeats the unfinished part of another one.
// Finished steps keep their status and outputs; all others begin afresh.
func CarryOver(list []Step) []Step {
	out := Clone(list)
	for i := range out {
		s := &out[i]
		if !s.Status.Done() {
			*s = Step{Name: s.Name, Status: Pending, Optional: s.Optional, Lane: s.Lane, Limits: s.Limits}
		}
		s.ClearRuns()
	}
	return out
}
