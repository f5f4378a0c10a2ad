package submit

import (
	"cmp"
	"encoding/hex"
	"maps"
	"slices"
	"sync"

	"github.com/jobdir/jobdir/statefs"
)

// hashPrefix is the beginning of a request hash. Every match is verified against the whole hash in the
// record, so that a collision costs only a read.
type hashPrefix [16]byte

func hashPrefixOf(requestHash string) (hashPrefix, bool) {
	var s hashPrefix
	if len(requestHash) < hex.EncodedLen(len(s)) {
		return s, false
	}
	_, err := hex.Decode(s[:], []byte(requestHash[:hex.EncodedLen(len(s))]))
	return s, err == nil
}

// dedupIndex finds live operations by their request hash. Its entries are candidates; the record and the
// marker decide.
type dedupIndex struct {
	mu sync.Mutex
	// one maps each hash to one of its operations, usually the only one; more has the others.
	one  map[hashPrefix]statefs.ID
	more map[hashPrefix]map[statefs.ID]bool
}

// add adds an operation, and reports whether it was new.
func (l *dedupIndex) add(s hashPrefix, id statefs.ID) bool {
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

func (l *dedupIndex) remove(s hashPrefix, id statefs.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
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

// all returns the operations with a hash in order of submit.
func (l *dedupIndex) all(s hashPrefix) []statefs.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, ok := l.one[s]
	if !ok {
		return nil
	}
	ids := append(slices.Collect(maps.Keys(l.more[s])), first)
	slices.SortFunc(ids, func(a, b statefs.ID) int { return cmp.Compare(a.Sequence(), b.Sequence()) })
	return ids
}

// claims let only one submit at a time decide about a request hash or an idempotency key.
type claims struct {
	mu   sync.Mutex
	held map[hashPrefix]chan struct{} // closed on release
}

// acquire claims all of sums at once, so that two submits cannot deadlock, or returns a channel to wait for.
func (c *claims) acquire(sums []hashPrefix) (busy <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range sums {
		if other := c.held[s]; other != nil {
			return other
		}
	}
	for _, s := range sums {
		c.held[s] = make(chan struct{})
	}
	return nil
}

func (c *claims) release(sums []hashPrefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range sums {
		close(c.held[s])
		delete(c.held, s)
	}
}
