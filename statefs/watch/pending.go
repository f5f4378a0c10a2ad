package watch

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jobdir/jobdir/statefs/notify"
)

// maxReusedKeys is the size up to which the emptied map is reused: clearing a map costs as much as
// its largest size ever.
const maxReusedKeys = 1024

// pending is the deduplicating set between the reader and the consumer. It is bounded by the number
// of different keys, not of events.
type pending[K comparable] struct {
	ready chan struct{} // cap 1

	mu     sync.Mutex
	keys   map[K]struct{} // guarded by mu
	order  []K            // guarded by mu: the same keys in order of arrival
	rescan bool           // guarded by mu

	rescans atomic.Uint64 // rescans that Take returned
}

func (p *pending[K]) add(key K) {
	p.mu.Lock()
	if _, is := p.keys[key]; !is {
		p.keys[key] = struct{}{}
		p.order = append(p.order, key)
	}
	p.mu.Unlock()
	p.signal()
}

func (p *pending[K]) requestRescan() {
	p.mu.Lock()
	p.rescan = true
	p.mu.Unlock()
	p.signal()
}

// signal must follow the change that it reports, so that a woken consumer finds it.
func (p *pending[K]) signal() { notify.Wake(p.ready) }

// Ready has a value when there may be something to take. It holds one value however much there is,
// and may hold one when there is nothing.
func (p *pending[K]) Ready() <-chan struct{} { return p.ready }

// Take empties the set and returns its keys in the order of arrival. rescan means that events were
// lost or are unavailable: call Check, then list the folder and reconcile everything. The keys are
// returned in addition to a rescan, not instead of it.
//
// An event that arrives after Take adds its key to the set again, even while the consumer is still
// handling the key: the next Take returns it.
func (p *pending[K]) Take() (keys []K, rescan bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rescan, p.rescan = p.rescan, false; rescan {
		p.rescans.Add(1)
	}
	keys, p.order = p.order, nil
	if len(p.keys) > maxReusedKeys {
		p.keys = make(map[K]struct{})
	} else {
		clear(p.keys)
	}
	return keys, rescan
}

// Pending reports whether the next Take would return key or a rescan: there was an event since the
// last Take. False proves nothing, because an event may still be on its way.
func (p *pending[K]) Pending(key K) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.keys[key]
	return ok || p.rescan
}

// Peek returns what the next Take would return, without emptying the set.
func (p *pending[K]) Peek() (keys []K, rescan bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.order), p.rescan
}
