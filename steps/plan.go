package steps

import "slices"

// Move says what becomes of the main chain of an operation.
type Move string

// The moves.
const (
	// Start means that a step may begin: its condition is judged first, and it is skipped when that does not hold.
	Start Move = "start"
	// Gate means that a person has to approve a step.
	Gate Move = "gate"
	// Wait means that a step is at work, is to be tried again, or waits for a person.
	Wait Move = "wait"
	// Over means that every required step is done.
	Over Move = "over"
)

// Main says what becomes of the main chain: the first required step in the order of the graph that is not done decides. Step is that one, "" when
// it is over.
func (g Graph) Main(list []Step) (move Move, step string) {
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

// Side returns the optional steps that may begin, in the order of the graph: those that are pending, and whose needs are done. One that needs a
// step which waits for a person waits with it.
func (g Graph) Side(list []Step) []string {
	var names []string
	order, _ := g.Order()
	for _, n := range order {
		if s := Find(list, n.Name); s != nil && s.Optional && s.Status == Pending && g.Ready(list, n.Name) {
			names = append(names, n.Name)
		}
	}
	return names
}

// Ready reports whether all that a step needs is done. A step that failed may not be ready to be tried again: somebody went back to one that it
// needs.
func (g Graph) Ready(list []Step, name string) bool {
	n := g.Find(name)
	return n != nil && !slices.ContainsFunc(n.Needs, func(need string) bool { return !done(list, need) })
}

func done(list []Step, name string) bool {
	s := Find(list, name)
	return s == nil || s.Status.Done()
}

// Trails reports whether optional steps are at work or will be without anybody's doing: one is running, or may begin now or at its time.
func (g Graph) Trails(list []Step) bool {
	for _, s := range list {
		if s.Optional && (s.Status == Running || s.Status == FailedRetryable && g.Ready(list, s.Name)) {
			return true
		}
	}
	return len(g.Side(list)) > 0
}

// Back has a step and all that need it begin again.
func (g Graph) Back(list []Step, name string) {
	after := g.After(name)
	for i := range list {
		s := &list[i]
		if !after[s.Name] || s.Status == Pending || s.Apply(CauseBack) != nil {
			continue
		}
		s.ItemsFrom = s.Run + 1
		s.Reason, s.Outputs, s.ApprovedBy, s.ApprovedAt, s.DueAt, s.Attempts, s.Deaths = "", nil, "", nil, nil, 0, 0
	}
}

// Progress is how many steps of the operation's chain are done, of how many. Optional ones do not count.
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
