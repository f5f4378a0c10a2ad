package submit

import (
	"encoding/hex"
	"maps"
	"slices"
	"sync"

	"github.com/jobdir/jobdir/statefs"
)

// sum is the beginning of a request hash. What it finds is compared with the whole hash in the record, so that a collision costs a look.
type sum [16]byte

func sumOf(requestHash string) (sum, bool) {
	var s sum
	if len(requestHash) < hex.EncodedLen(len(s)) {
		return s, false
	}
	_, err := hex.Decode(s[:], []byte(requestHash[:hex.EncodedLen(len(s))]))
	return s, err == nil
}

// live finds live operations by their request hash. It is a guess of where to look: the record and the marker say what is so.
type live struct {
	mu sync.Mutex
	// one has an operation of each hash, which is all in most cases, more the others of the same.
	one  map[sum]statefs.ID
	more map[sum]map[statefs.ID]bool
	// unsettled are operations that another process submitted: whether they are durable is not known.
	unsettled map[statefs.ID]bool
	// unseen are operations that were submitted here and that the daemon has not told of.
	unseen map[statefs.ID]bool
}

func newLive() *live {
	return &live{
		one: make(map[sum]statefs.ID), more: make(map[sum]map[statefs.ID]bool), unsettled: make(map[statefs.ID]bool), unseen: make(map[statefs.ID]bool),
	}
}

// submit notes an operation that is about to be on disk.
func (l *live) submit(s sum, id statefs.ID) {
	l.add(s, id)
	l.mu.Lock()
	l.unseen[id] = true
	l.mu.Unlock()
}

// see notes that the daemon knows of an operation.
func (l *live) see(id statefs.ID) {
	l.mu.Lock()
	delete(l.unseen, id)
	l.mu.Unlock()
}

func (l *live) allUnseen() []statefs.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.unseen))
}

// add notes an operation, and reports whether it was not known.
func (l *live) add(s sum, id statefs.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, ok := l.one[s]
	switch {
	case !ok:
		l.one[s] = id
	case first == id || l.more[s][id]:
		return false
	default:
		if l.more[s] == nil {
			l.more[s] = make(map[statefs.ID]bool)
		}
		l.more[s][id] = true
	}
	return true
}

func (l *live) remove(s sum, id statefs.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.unsettled, id)
	delete(l.unseen, id)
	others := l.more[s]
	switch {
	case l.one[s] != id:
		delete(others, id)
	case len(others) == 0:
		delete(l.one, s)
	default:
		for other := range others {
			l.one[s] = other
			delete(others, other)
			break
		}
	}
	if len(others) == 0 {
		delete(l.more, s)
	}
}

// all returns the operations of a hash in the order of their submit.
func (l *live) all(s sum) []statefs.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, ok := l.one[s]
	if !ok {
		return nil
	}
	ids := append(slices.Collect(maps.Keys(l.more[s])), first)
	slices.SortFunc(ids, func(a, b statefs.ID) int {
		if a.Sequence() < b.Sequence() {
			return -1
		}
		return 1
	})
	return ids
}

func (l *live) unsettle(id statefs.ID) {
	l.mu.Lock()
	l.unsettled[id] = true
	l.mu.Unlock()
}

func (l *live) isUnsettled(id statefs.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unsettled[id]
}

func (l *live) settled(id statefs.ID) {
	l.mu.Lock()
	delete(l.unsettled, id)
	l.mu.Unlock()
}

// claims let one submit at a time decide about a request hash or an idempotency key.
type claims struct {
	mu    sync.Mutex
	taken map[sum]chan struct{} // closed when it is given back
}

// take claims all of sums at once, so that no two submits wait for each other, or returns what to wait for.
func (c *claims) take(sums []sum) (busy <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range sums {
		if other := c.taken[s]; other != nil {
			return other
		}
	}
	if c.taken == nil {
		c.taken = make(map[sum]chan struct{})
	}
	for _, s := range sums {
		c.taken[s] = make(chan struct{})
	}
	return nil
}

func (c *claims) giveBack(sums []sum) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range sums {
		close(c.taken[s])
		delete(c.taken, s)
	}
}
