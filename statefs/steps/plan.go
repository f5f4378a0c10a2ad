package steps

import "slices"

// Move is the next move of an operation's required steps.
type Move string

// The moves.
const (
	// Start means that a step may begin. Its condition is evaluated first, and the step is skipped
	// if it does not hold.
	Start Move = "start"
	// Gate means that a person has to approve a step.
	Gate Move = "gate"
	// Wait means that a step is at work, waits for a retry, or waits for a person.
	Wait Move = "wait"
	// Over means that every required step is done.
	Over Move = "over"
)

// NextRequired returns the next move of the required steps. The first required step, in the order
// of the graph, that is not done determines it. step is its name, "" for Over.
func (g Graph) NextRequired(list []Step) (move Move, step string) {
	order, _ := g.Order()
	for _, n := range order {
		s := Find(list, n.Name)
		if s == nil || s.Optional || s.Status.Done() {
			continue
		}
		switch {
		case s.Status != Pending:
			return Wait, n.Name
		case n.Approve && s.ApprovedAt == nil:
			return Gate, n.Name
		}
		return Start, n.Name
	}
	return Over, ""
}

// ReadyOptional returns the optional steps that may begin, in the order of the graph: the pending
// ones whose needs are done. A step that needs one waiting for a person waits too.
func (g Graph) ReadyOptional(list []Step) []string {
	var names []string
	order, _ := g.Order()
	for _, n := range order {
		if s := Find(list, n.Name); s != nil && s.Optional && s.Status == Pending && g.Ready(list, n.Name) {
			names = append(names, n.Name)
		}
	}
	return names
}

// Ready reports whether everything that a step needs is done. A failed step may not be ready for
// its retry, because a person went back to a step that it needs.
func (g Graph) Ready(list []Step, name string) bool {
	n := g.Find(name)
	return n != nil && !slices.ContainsFunc(n.Needs, func(need string) bool {
		s := Find(list, need)
		return s != nil && !s.Status.Done()
	})
}

// HasUnfinishedOptional reports whether an operation whose required steps are done has optional
// steps that are at work, start now or later, or wait for a person.
func (g Graph) HasUnfinishedOptional(list []Step) bool {
	for _, s := range list {
		if s.Optional && (s.Status == Running || s.Status == FailedManual || s.Status == FailedRetryable &&
			g.Ready(list, s.Name)) {
			return true
		}
	}
	return len(g.ReadyOptional(list)) > 0
}

// RestartFrom resets a step and all steps that need it, so that they begin again.
func (g Graph) RestartFrom(list []Step, name string) {
	after := g.WithDependents(name)
	for i := range list {
		s := &list[i]
		if !after[s.Name] || s.Status == Pending || s.Apply(CauseBack) != nil {
			continue
		}
		s.ItemsFrom = s.Run + 1
		s.Reason, s.Outputs, s.ApprovedBy, s.ApprovedAt, s.DueAt = "", nil, "", nil, nil
		s.Attempts, s.DiedAt, s.Backoff = 0, nil, 0
	}
}

// Progress returns how many required steps are done, and how many there are.
func Progress(list []Step) (finished, all int) {
	for _, s := range list {
		if s.Optional {
			continue
		}
		all++
		if s.Status.Done() {
			finished++
		}
	}
	return finished, all
}
