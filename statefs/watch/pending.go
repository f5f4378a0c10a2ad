package watch

import (
	"maps"
	"slices"
	"sync"
)

// keptKeys is the size up to which the emptied set is used again: clearing a
// map costs as much as the most it ever held.
const keptKeys = 1024

// pending is the de-duplicating set between the reader and the consumer. It
// is bounded by the number of different keys, not by the number of events.
type pending[K comparable] struct {
	ready chan struct{} // cap 1

	mu     sync.Mutex
	keys   map[K]struct{} // guarded by mu
	rescan bool           // guarded by mu
}

func newPending[K comparable]() *pending[K] {
	return &pending[K]{ready: make(chan struct{}, 1), keys: make(map[K]struct{})}
}

func (p *pending[K]) add(key K) {
	p.mu.Lock()
	p.keys[key] = struct{}{}
	p.mu.Unlock()
	p.signal()
}

func (p *pending[K]) askRescan() {
	p.mu.Lock()
	p.rescan = true
	p.mu.Unlock()
	p.signal()
}

// signal comes after the change it announces, so that a consumer that was
// woken finds it.
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
	if len(p.keys) == 0 {
		return nil, rescan
	}
	keys = make([]K, 0, len(p.keys))
	for key := range p.keys {
		keys = append(keys, key)
	}
	if len(p.keys) > keptKeys {
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

func (p *pending[K]) waiting() (keys []K, rescan bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.keys)), p.rescan
}
