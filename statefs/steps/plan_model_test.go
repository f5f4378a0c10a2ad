package steps

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawGraph draws steps that need earlier ones and shuffles them, as a definition file may. A
// required step needs no optional one.
func drawGraph(t *rapid.T) Graph {
	var g Graph
	for i := range rapid.IntRange(1, 8).Draw(t, "steps") {
		n := Node{Name: fmt.Sprintf("s%d", i), Optional: i > 0 && rapid.IntRange(0, 2).Draw(t, "optional") == 0}
		for _, before := range g {
			if (n.Optional || !before.Optional) && rapid.IntRange(0, 2).Draw(t, "needs") == 0 {
				n.Needs = append(n.Needs, before.Name)
			}
		}
		n.Approve = !n.Optional && rapid.IntRange(0, 3).Draw(t, "approve") == 0
		g = append(g, n)
	}
	return rapid.Permutation(g).Draw(t, "file")
}

// chain is an operation driven as by the daemon, with its own bookkeeping of each step beside the
// list.
type chain struct {
	t     *rapid.T
	graph Graph
	list  []Step
	begun map[string]int // how often each step has begun since a person last went back to it
	done  map[string]bool
}

func newChain(t *rapid.T) *chain {
	c := &chain{t: t, graph: drawGraph(t), begun: map[string]int{}, done: map[string]bool{}}
	order, cycle := c.graph.Order()
	if cycle != nil || len(order) != len(c.graph) {
		t.Fatalf("%v has no order: %v", c.graph, cycle)
	}
	place := map[string]int{}
	for i, n := range order {
		place[n.Name] = i
		for _, need := range n.Needs {
			if at, ok := place[need]; !ok || at >= i {
				t.Fatalf("%s comes before %s, which it needs: %v", n.Name, need, order)
			}
		}
		c.list = append(c.list, Step{Name: n.Name, Status: Pending, Optional: n.Optional})
	}
	return c
}

func (c *chain) apply(name string, cause Cause) {
	c.t.Helper()
	s := Find(c.list, name)
	if err := s.Apply(cause); err != nil {
		c.t.Fatalf("%v: %v", err, c.list)
	}
	switch cause {
	case CauseStart:
		for _, need := range c.graph.Find(name).Needs {
			if !Find(c.list, need).Status.Done() {
				c.t.Fatalf("%s begins before %s: %v", name, need, c.list)
			}
		}
		if c.done[name] {
			c.t.Fatalf("%s begins again: %v", name, c.list)
		}
		c.begun[name]++
	case CauseDone, CauseSkip, CauseWhen, CauseApprove:
		c.done[name] = true
	case CauseRetryLater, CauseNeedsPerson, CauseCutOff, CauseRetry, CauseBack, CauseReject:
	}
}

// of draws one of the steps with one of the statuses.
func (c *chain) of(statuses ...Status) string {
	var names []string
	for _, s := range c.list {
		if slices.Contains(statuses, s.Status) {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		c.t.Skip("no such step")
	}
	return rapid.SampledFrom(names).Draw(c.t, "step")
}

// stands computes the expected result of NextRequired independently.
func (c *chain) stands() (Move, string) {
	for _, s := range c.list { // the list is in the order of the graph
		switch n := c.graph.Find(s.Name); {
		case n.Optional, s.Status == Succeeded, s.Status == Skipped:
		case s.Status == Pending && n.Approve && s.ApprovedAt == nil:
			return Gate, s.Name
		case s.Status == Pending:
			return Start, s.Name
		default:
			return Wait, s.Name
		}
	}
	return Over, ""
}

// TestRandomGraphs drives random graphs by NextRequired and ReadyOptional. No step begins before
// what it needs, no finished step begins again unless a person goes back, and until everything is
// over there is always a step to begin, at work, or waiting.
func TestRandomGraphs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newChain(t)
		main := func() (Move, string) {
			move, name := c.graph.NextRequired(c.list)
			if m, n := c.stands(); m != move || n != name {
				t.Fatalf("Main says %s %s, it is %s %s: %v", move, name, m, n, c.list)
			}
			return move, name
		}
		t.Repeat(map[string]func(*rapid.T){
			"go on": func(t *rapid.T) {
				switch move, name := main(); move {
				case Start:
					c.apply(name, rapid.SampledFrom([]Cause{CauseStart, CauseStart, CauseStart, CauseWhen}).Draw(t, "cause"))
				case Gate:
					if rapid.Bool().Draw(t, "no work") {
						c.apply(name, CauseApprove)
						return
					}
					Find(c.list, name).ApprovedAt = new(time.Time)
				case Wait, Over:
				}
			},
			"beside": func(t *rapid.T) {
				for _, name := range c.graph.ReadyOptional(c.list) {
					if Find(c.list, name).Status != Pending || !c.graph.Find(name).Optional {
						t.Fatalf("%s is to begin beside: %v", name, c.list)
					}
					if rapid.Bool().Draw(t, "begins") {
						c.apply(name, CauseStart)
					}
				}
			},
			"end": func(t *rapid.T) {
				c.apply(c.of(Running), rapid.SampledFrom([]Cause{
					CauseDone, CauseDone, CauseRetryLater, CauseNeedsPerson,
					CauseCutOff,
				}).Draw(t, "cause"))
			},
			"try again": func(t *rapid.T) {
				name := c.of(FailedRetryable)
				if !c.graph.Ready(c.list, name) {
					t.Skip("somebody went back to what it needs")
				}
				c.apply(name, CauseStart)
			},
			"retry": func(*rapid.T) { c.apply(c.of(FailedRetryable, FailedManual), CauseRetry) },
			"skip":  func(*rapid.T) { c.apply(c.of(Pending, FailedRetryable, FailedManual), CauseSkip) },
			"back": func(t *rapid.T) {
				if slices.ContainsFunc(c.list, func(s Step) bool { return s.Status == Running && !s.Optional }) {
					t.Skip("a required step is at work")
				}
				name := c.of(Succeeded, Skipped)
				before := Clone(c.list)
				c.graph.RestartFrom(c.list, name)
				for i, s := range c.list {
					again := s.Name == name || c.needs(s.Name, name)
					switch {
					case again && before[i].Status == Running && s.Status != Running:
						t.Fatalf("back to %s changes %s, which is at work: %v", name, s.Name, c.list)
					case again && before[i].Status != Running && (s.Status != Pending || s.Outputs != nil || s.ApprovedAt != nil &&
						before[i].Status != Pending):
						t.Fatalf("back to %s leaves %s: %v", name, s.Name, c.list)
					case !again && s.Status != before[i].Status:
						t.Fatalf("back to %s changes %s: %v", name, s.Name, c.list)
					}
					if again {
						c.done[s.Name] = false
					}
				}
			},
			"": func(t *rapid.T) {
				move, _ := main()
				finished, all := Progress(c.list)
				if (move == Over) != (finished == all) {
					t.Fatalf("%s with %d of %d done: %v", move, finished, all, c.list)
				}
				goesOn := false
				for _, s := range c.list {
					ready := !slices.ContainsFunc(c.graph.Find(s.Name).Needs, func(need string) bool { return !c.done[need] })
					goesOn = goesOn || s.Optional && (s.Status == Running || s.Status == FailedManual || ready &&
						(s.Status == FailedRetryable || s.Status == Pending))
				}
				if c.graph.HasUnfinishedOptional(c.list) != goesOn {
					t.Fatalf("Trails says %t: %v", !goesOn, c.list)
				}
			},
		})
		// The rest ends in no more moves than there are steps.
		for range c.list {
			for _, name := range c.graph.ReadyOptional(c.list) {
				c.apply(name, CauseStart)
			}
			for i := range c.list {
				switch s := &c.list[i]; s.Status {
				case FailedRetryable, FailedManual:
					c.apply(s.Name, CauseSkip)
				case Running:
					c.apply(s.Name, CauseDone)
				case Pending, Succeeded, Skipped:
				}
			}
			switch move, name := main(); move {
			case Start:
				c.apply(name, CauseStart)
				c.apply(name, CauseDone)
			case Gate:
				c.apply(name, CauseSkip)
			case Wait, Over:
			}
		}
		if move, name := main(); move != Over {
			t.Fatalf("it stands still at %s %s: %v", move, name, c.list)
		}
	})
}

// needs reports whether a step needs another one, directly or indirectly, by following every path.
func (c *chain) needs(name, other string) bool {
	return slices.ContainsFunc(c.graph.Find(name).Needs, func(need string) bool {
		return need == other ||
			c.needs(need, other)
	})
}

// TestRandomCircles checks that a cyclic graph is refused and that the reported cycle is one.
func TestRandomCircles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		from := rapid.IntRange(0, len(g)-1).Draw(t, "from")
		way := rapid.SampledFrom(slices.Sorted(func(yield func(string) bool) {
			for name := range g.WithDependents(g[from].Name) {
				if !yield(name) {
					return
				}
			}
		})).Draw(t, "needs")
		g[from].Needs = append(g[from].Needs, way) // which needs it
		_, cycle := g.Order()
		if len(cycle) < 2 || cycle[0] != cycle[len(cycle)-1] {
			t.Fatalf("%v: the circle %v", g, cycle)
		}
		for i, name := range cycle[:len(cycle)-1] {
			if !slices.Contains(g.Find(name).Needs, cycle[i+1]) {
				t.Fatalf("%v: %s does not need %s", g, name, cycle[i+1])
			}
		}
	})
}
