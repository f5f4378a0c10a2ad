package watch

import (
	"slices"
	"sync"
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
}

func newPending[K comparable]() *pending[K] {
	return &pending[K]{ready: make(chan struct{}, 1), keys: make(map[K]struct{})}
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
func (p *pending[K]) signal() {
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

func (p *pending[K]) take() (keys []K, rescan bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rescan, p.rescan = p.rescan, false
	keys, p.order = p.order, nil
	if len(p.keys) > maxReusedKeys {
		p.keys = make(map[K]struct{})
	} else {
		clear(p.keys)
	}
	return keys, rescan
}

func (p *pending[K]) has(key K) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.keys[key]
	return ok || p.rescan
}

func (p *pending[K]) peek() (keys []K, rescan bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.order), p.rescan
}
