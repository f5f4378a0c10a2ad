package torture

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/jobdir/jobdir/statefs"
)

// life is one operation as its clients may know it: the machine of states of a job that never ends by itself, and the requests that were
// made. It changes by what is called, and by itself when the daemon gets to it (see meanwhile).
type life struct {
	state statefs.State // of the marker; "" before the submit
	held  bool          // it has no work in hand: a resume queues it
	ended bool          // the record says cancelled
	gone  bool          // and so the marker is removed, which comes after

	stand  [2]statefs.Ask // pause and resume in jobs/, the older one first
	inHand [2]statefs.Ask // those that the daemon has taken, which nobody takes back
	cancel bool           // a cancel stands or is in hand
}

// call is what a client did.
type call struct {
	id    statefs.ID
	do    deed
	ask   statefs.Ask   // of request and touch
	state statefs.State // of marker; what move makes of it
	from  statefs.State // of move
}

type deed string

const (
	submit  deed = "submit"
	get     deed = "get"     // what the daemon says the state is
	marker  deed = "ls"      // whether the marker of a state is there
	request deed = "request" // over HTTP
	touch   deed = "touch"   // of a request file
	move    deed = "mv"      // of the marker
)

// reply is what came of a call.
type reply struct {
	state  statefs.State // of submit and get
	yes    bool          // marker: it is there; move: it was made
	absent bool          // request: there is no such live operation
	lost   bool          // nobody knows
}

// meanwhile returns what an operation may be a step later without any call.
func (l life) meanwhile() []life {
	var next []life
	step := func(change func(*life)) {
		n := l
		change(&n)
		next = append(next, n)
	}
	switch {
	case l.state == "" || l.gone:
		return nil
	case l.ended: // the record first, then the marker
		return []life{{state: l.state, ended: true, gone: true}}
	case l.state == statefs.Queued:
		step(func(n *life) { n.state, n.held = statefs.Running, false })
	case l.state == statefs.Running && l.held: // a hand has moved a marker whose work has not begun
		step(func(n *life) { n.state, n.held = statefs.Queued, false })
	}
	// The older one is carried out first. Cancel beats all in the end, but what was asked before it may be in hand already.
	if l.stand[0] != "" && l.inHand[1] == "" && l.inHand[0] != l.stand[0] {
		step(func(n *life) { n.inHand = after(n.inHand, n.stand[0]); n.stand = after(n.stand, "") })
	}
	if l.inHand[0] != "" {
		step(func(n *life) { n.to(n.inHand[0]); n.inHand = after(n.inHand, "") })
	}
	if l.cancel {
		step(func(n *life) { *n = life{state: n.state, ended: true} }) // whatever stands has no meaning any more
	}
	return next
}

// after puts a request behind the others; "" takes the first one away.
func after(asks [2]statefs.Ask, last statefs.Ask) [2]statefs.Ask {
	switch {
	case last == "":
		return [2]statefs.Ask{asks[1], ""}
	case asks[0] == "" || asks[0] == last && asks[1] == "":
		return [2]statefs.Ask{last, ""}
	case asks[0] == last:
		return [2]statefs.Ask{asks[1], last}
	}
	return [2]statefs.Ask{asks[0], last}
}

// to is the effect of a pause or a resume.
func (l *life) to(ask statefs.Ask) {
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

// stands notes a request. One over HTTP takes its opposite back, unless the daemon has that in hand; a touch leaves it, and comes after.
func (l life) stands(ask statefs.Ask, overHTTP bool) life {
	switch {
	case l.ended:
	case ask == statefs.Cancel:
		l.cancel = true
	case overHTTP:
		l.stand = [2]statefs.Ask{ask}
	default:
		l.stand = after(l.stand, ask)
	}
	return l
}

// then returns what an operation may be once a call has got a reply; nothing when that reply is wrong. The answer to a request promises
// that it stands. The state that comes with it, or that a wait has seen, is a call of its own in the history.
func (l life) then(c call, r reply) []life {
	if c.do == submit {
		if l.state == "" && (r.state == statefs.Queued || r.state == statefs.Running) {
			return []life{{state: statefs.Queued}}
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
		return []life{l.stands(c.ask, false)}
	case move:
		right = r.yes == (!l.gone && l.state == c.from)
		if r.yes {
			l.held = l.held || c.from == statefs.Queued
			l.state = c.state
		}
	case request:
		switch {
		case r.lost:
			return []life{l, l.stands(c.ask, true)}
		case r.absent:
			right = l.gone
		default:
			right, l = right && !l.gone, l.stands(c.ask, true)
		}
	case submit:
	}
	if !right {
		return nil
	}
	return []life{l}
}

// lives are all that an operation may be.
type lives map[life]bool

// add adds what an operation may be, now and by itself later.
func (all lives) add(l life) {
	if all[l] {
		return
	}
	all[l] = true
	for _, next := range l.meanwhile() {
		all.add(next)
	}
}

var hashing = maphash.MakeSeed()

// lifetimes is the model of the checker: each operation by itself.
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
	Init: func() any { return lives{life{}: true} },
	Step: func(state, input, output any) (bool, any) {
		now, _ := state.(lives)
		c, _ := input.(call)
		r, _ := output.(reply)
		next := make(lives)
		for l := range now {
			for _, n := range l.then(c, r) {
				next.add(n)
			}
		}
		return len(next) > 0, next
	},
	Equal: func(a, b any) bool {
		left, _ := a.(lives)
		right, _ := b.(lives)
		for l := range left {
			if !right[l] {
				return false
			}
		}
		return len(left) == len(right)
	},
	Hash: func(state any) (sum uint64) {
		all, _ := state.(lives)
		for l := range all {
			sum ^= maphash.Comparable(hashing, l)
		}
		return sum
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%s -> %s", input, output) },
	DescribeState: func(state any) string {
		var words []string
		all, _ := state.(lives)
		for l := range all {
			words = append(words, fmt.Sprintf("%+v", l))
		}
		slices.Sort(words)
		return strings.Join(words, "\n")
	},
}

func inputOf(entry porcupine.Operation) call {
	c, _ := entry.Input.(call)
	return c
}

func (c call) String() string {
	switch c.do {
	case request, touch:
		return fmt.Sprintf("%s %s", c.do, c.ask)
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
