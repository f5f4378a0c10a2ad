package steps

import "slices"

// Node is a step as the job defines it, as far as the order of steps goes.
type Node struct {
	Name     string
	Needs    []string // steps that are done before it begins
	Optional bool
	Approve  bool // a person has to approve before it begins
	Gate     bool // it has no work: once approved it is done
}

// Graph is the steps of a job in the order of the file.
type Graph []Node

// Find returns the node of a name, nil when there is none.
func (g Graph) Find(name string) *Node {
	for i := range g {
		if g[i].Name == name {
			return &g[i]
		}
	}
	return nil
}

// Order returns the steps so that each comes after all that it needs, and otherwise as they stand in the file. When that cannot be, cycle
// names the steps of one circle, the first one again at its end. Needs that are no step are passed over.
func (g Graph) Order() (order Graph, cycle []string) {
	done := make(map[string]bool, len(g))
	for len(order) < len(g) {
		i := slices.IndexFunc(g, func(n Node) bool { return !done[n.Name] && g.ready(n, done) })
		if i < 0 {
			return order, g.circle(done)
		}
		done[g[i].Name] = true
		order = append(order, g[i])
	}
	return order, nil
}

func (g Graph) ready(n Node, done map[string]bool) bool {
	return !slices.ContainsFunc(n.Needs, func(need string) bool { return !done[need] && g.Find(need) != nil })
}

// circle follows the needs of a step that cannot be reached until it comes by one a second time.
func (g Graph) circle(done map[string]bool) []string {
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

// After returns the names of a step and of all that need it, directly or not.
func (g Graph) After(name string) map[string]bool {
	after := map[string]bool{name: true}
	order, _ := g.Order()
	for _, n := range order {
		if slices.ContainsFunc(n.Needs, func(need string) bool { return after[need] }) {
			after[n.Name] = true
		}
	}
	return after
}
