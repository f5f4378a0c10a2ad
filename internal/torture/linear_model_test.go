package torture

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/anishathalye/porcupine"

	"github.com/jobdir/jobdir/statefs"
)

// modelState is a possible state of one operation: the state machine of a job that never ends by itself, and
// its pending requests. Calls change it, and so does the daemon without a call (see meanwhile).
type modelState struct {
	state statefs.State // of the marker; "" before the submit
	held  bool          // it has no running work, so that a resume queues it
	ended bool          // the record says cancelled
	gone  bool          // the marker is removed, which happens after the record is written

	pending [2]statefs.Action // pause and resume in jobs/, the older one first
	taken   [2]statefs.Action // taken by the daemon, so that no request can withdraw them
	cancel  bool              // a cancel is in jobs/ or taken by the daemon
}

// call is a call of a client.
type call struct {
	id     statefs.ID
	do     callKind
	action statefs.Action // of request and touch
	state  statefs.State  // of marker; for move the new state
	from   statefs.State  // of move
}

type callKind string

const (
	submit  callKind = "submit"
	get     callKind = "get"     // the state that the daemon reports
	marker  callKind = "ls"      // whether the marker of a state exists
	request callKind = "request" // over HTTP
	touch   callKind = "touch"   // of a request file
	move    callKind = "mv"      // of the marker
)

// reply is the result of a call.
type reply struct {
	state  statefs.State // of submit and get
	yes    bool          // marker: it exists; move: it succeeded
	absent bool          // request: there is no such live operation
	lost   bool          // no reply
}

// meanwhile returns the states which the operation may reach in one step without a call.
func (l modelState) meanwhile() []modelState {
	var next []modelState
	step := func(change func(*modelState)) {
		n := l
		change(&n)
		next = append(next, n)
	}
	switch {
	case l.state == "" || l.gone:
		return nil
	case l.ended: // the record is written before the marker is removed
		return []modelState{{state: l.state, ended: true, gone: true}}
	case l.state == statefs.Queued:
		step(func(n *modelState) { n.state, n.held = statefs.Running, false })
	case l.state == statefs.Running && l.held: // a person moved the marker of an operation whose work has not started
		step(func(n *modelState) { n.state, n.held = statefs.Queued, false })
	}
	// The older request is carried out first. Cancel wins in the end, but an earlier request may have been
	// taken already.
	if l.pending[0] != "" && l.taken[1] == "" && l.taken[0] != l.pending[0] {
		step(func(n *modelState) { n.taken = after(n.taken, n.pending[0]); n.pending = after(n.pending, "") })
	}
	if l.taken[0] != "" {
		step(func(n *modelState) { n.to(n.taken[0]); n.taken = after(n.taken, "") })
	}
	if l.cancel {
		step(func(n *modelState) { *n = modelState{state: n.state, ended: true} }) // all other requests lose their meaning
	}
	return next
}

// after appends a request to the others; "" removes the first one.
func after(asks [2]statefs.Action, last statefs.Action) [2]statefs.Action {
	switch {
	case last == "":
		return [2]statefs.Action{asks[1], ""}
	case asks[0] == "" || asks[0] == last && asks[1] == "":
		return [2]statefs.Action{last, ""}
	case asks[0] == last:
		return [2]statefs.Action{asks[1], last}
	}
	return [2]statefs.Action{asks[0], last}
}

// to applies the effect of a pause or a resume.
func (l *modelState) to(ask statefs.Action) {
	switch {
	case ask == statefs.Pause && l.state != statefs.Paused:
		l.held = l.held || l.state == statefs.Queued
		l.state = statefs.Paused
	case ask == statefs.Resume && l.state == statefs.Paused && l.held:
		l.state, l.held = statefs.Queued, false
	case ask == statefs.Resume && l.state == statefs.Paused:
		l.state = statefs.Running
	}
}

// withRequest adds a request. Over HTTP it withdraws its opposite, unless the daemon has taken that one; a
// touch does not, and comes after it.
func (l modelState) withRequest(ask statefs.Action, overHTTP bool) modelState {
	switch {
	case l.ended:
	case ask == statefs.Cancel:
		l.cancel = true
	case overHTTP:
		l.pending = [2]statefs.Action{ask}
	default:
		l.pending = after(l.pending, ask)
	}
	return l
}

// then returns the possible states after a call with its reply; none if the reply is wrong. The answer to a
// request promises that the request is stored. The state in the answer, or seen by a wait, is a separate call
// in the history.
func (l modelState) then(c call, r reply) []modelState {
	if c.do == submit {
		if l.state == "" && (r.state == statefs.Queued || r.state == statefs.Running) {
			return []modelState{{state: statefs.Queued}}
		}
		return nil
	}
	right := l.state != ""
	switch c.do {
	case get:
		right = l.ended && r.state == statefs.Cancelled || !l.ended && r.state == l.state
	case marker:
		right = r.yes == (!l.gone && l.state == c.state)
	case touch:
		return []modelState{l.withRequest(c.action, false)}
	case move:
		right = r.yes == (!l.gone && l.state == c.from)
		if r.yes {
			l.held = l.held || c.from == statefs.Queued
			l.state = c.state
		}
	case request:
		switch {
		case r.lost:
			return []modelState{l, l.withRequest(c.action, true)}
		case r.absent:
			right = l.gone
		default:
			right, l = right && !l.gone, l.withRequest(c.action, true)
		}
	case submit:
	}
	if !right {
		return nil
	}
	return []modelState{l}
}

// modelStates are all possible states of an operation.
type modelStates map[modelState]bool

// add adds a state, and all states that it may reach without a call.
func (all modelStates) add(l modelState) {
	if all[l] {
		return
	}
	all[l] = true
	for _, next := range l.meanwhile() {
		all.add(next)
	}
}

// automaton numbers the sets of states that searches have met, and caches the effect of each call. There are
// few of them, and a search meets them millions of times: without the cache it was a hundred times slower,
// and too slow for some histories. It is safe for concurrent use.
type automaton struct {
	mu      sync.Mutex
	sets    []modelStates
	numbers map[string]int // by String
	steps   map[automatonStep]int
}

type automatonStep struct {
	from int
	call call // without the ID
	reply
}

func newAutomaton() *automaton {
	a := &automaton{numbers: make(map[string]int), steps: make(map[automatonStep]int)}
	a.number(nil)
	a.number(modelStates{modelState{}: true})
	return a
}

// The numbers of the empty set, which a wrong reply leaves, and of the set before the submit.
const (
	noLife      = 0
	beforeBirth = 1
)

// number returns the number of a set; the caller holds mu.
func (a *automaton) number(all modelStates) int {
	name := all.String()
	number, known := a.numbers[name]
	if !known {
		number = len(a.sets)
		a.sets, a.numbers[name] = append(a.sets, all), number
	}
	return number
}

// step returns the number of the set after a call with its reply.
func (a *automaton) step(from int, c call, r reply) int {
	c.id = statefs.ID{}
	a.mu.Lock()
	defer a.mu.Unlock()
	to, known := a.steps[automatonStep{from, c, r}]
	if known {
		return to
	}
	next := make(modelStates)
	for l := range a.sets[from] {
		for _, n := range l.then(c, r) {
			next.add(n)
		}
	}
	to = a.number(next)
	a.steps[automatonStep{from, c, r}] = to
	return to
}

func (a *automaton) set(number int) modelStates {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sets[number]
}

func (all modelStates) String() string {
	words := make([]string, 0, len(all))
	for l := range all {
		words = append(words, fmt.Sprintf("%+v", l))
	}
	slices.Sort(words)
	return strings.Join(words, "\n")
}

var lifetime = newAutomaton()

// lifetimes is the model for the checker: each operation is independent.
var lifetimes = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		of := make(map[statefs.ID][]porcupine.Operation)
		for _, entry := range history {
			id := inputOf(entry).id
			of[id] = append(of[id], entry)
		}
		var parts [][]porcupine.Operation
		for _, part := range of {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return beforeBirth },
	Step: func(state, input, output any) (bool, any) {
		now, _ := state.(int)
		c, _ := input.(call)
		r, _ := output.(reply)
		next := lifetime.step(now, c, r)
		return next != noLife, next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%s -> %s", input, output) },
	DescribeState: func(state any) string {
		number, _ := state.(int)
		return lifetime.set(number).String()
	},
}

func inputOf(entry porcupine.Operation) call {
	c, _ := entry.Input.(call)
	return c
}

func (c call) String() string {
	switch c.do {
	case request, touch:
		return fmt.Sprintf("%s %s", c.do, c.action)
	case move:
		return fmt.Sprintf("mv %s %s", c.from, c.state)
	case submit, get, marker:
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s", c.do, c.state))
}

func (r reply) String() string {
	switch {
	case r.lost:
		return "no answer"
	case r.absent:
		return "not found"
	case r.state != "":
		return string(r.state)
	}
	return strconv.FormatBool(r.yes)
}
