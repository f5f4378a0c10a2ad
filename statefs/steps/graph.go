package steps

import "slices"

// Node is a step of the job's definition, reduced to what determines the order.
type Node struct {
	Name     string
	Needs    []string // steps that are done before it begins
	Optional bool
	Approve  bool // a person has to approve before it begins
}

// Graph is the steps of a job in the order of the definition file.
type Graph []Node

// Find returns the node with a name, nil if there is none.
func (g Graph) Find(name string) *Node {
	return First(g, func(n *Node) bool { return n.Name == name })
}

// Order sorts the steps so that each comes after everything it needs, and otherwise keeps the order
// of the file. If that is impossible, cycle names the steps of one cycle, with the first one
// repeated at the end. Needs that are not steps are ignored.
func (g Graph) Order() (order Graph, cycle []string) {
	done := make(map[string]bool, len(g))
	for len(order) < len(g) {
		i := slices.IndexFunc(g, func(n Node) bool { return !done[n.Name] && g.ready(n, done) })
		if i < 0 {
			return order, g.findCycle(done)
		}
		done[g[i].Name] = true
		order = append(order, g[i])
	}
	return order, nil
}

func (g Graph) ready(n Node, done map[string]bool) bool {
	return !slices.ContainsFunc(n.Needs, func(need string) bool { return !done[need] && g.Find(need) != nil })
}

// findCycle follows the needs of an unreachable step until it meets a step a second time.
func (g Graph) findCycle(done map[string]bool) []string {
	at := slices.IndexFunc(g, func(n Node) bool { return !done[n.Name] })
	var way []string
	for name := g[at].Name; ; {
		if i := slices.Index(way, name); i >= 0 {
			return append(way[i:], name)
		}
		way = append(way, name)
		needs := g.Find(name).Needs
		name = needs[slices.IndexFunc(needs, func(need string) bool { return !done[need] && g.Find(need) != nil })]
	}
}

// PredecessorsSucceeded reports whether every predecessor of a step succeeded: the required steps
// before it, and the steps that it needs directly or indirectly. A step skipped by its condition
// counts as succeeded.
func (g Graph) PredecessorsSucceeded(list []Step, name string) bool {
	order, _ := g.Order()
	at := slices.IndexFunc(order, func(n Node) bool { return n.Name == name })
	needed := map[string]bool{name: true}
	for _, n := range slices.Backward(order[:at+1]) {
		if n.Optional && !needed[n.Name] {
			continue
		}
		for _, need := range n.Needs {
			needed[need] = true
		}
		if s := Find(list, n.Name); n.Name != name && s != nil && s.Status != Succeeded && !s.SkippedByCondition() {
			return false
		}
	}
	return true
}

// WithDependents returns the names of a step and of all steps that need it, directly or indirectly.
func (g Graph) WithDependents(name string) map[string]bool {
	after := map[string]bool{name: true}
	order, _ := g.Order()
	for _, n := range order {
		if slices.ContainsFunc(n.Needs, func(need string) bool { return after[need] }) {
			after[n.Name] = true
		}
	}
	return after
}
