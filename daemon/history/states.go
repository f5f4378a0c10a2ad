package history

import (
	"context"
	"errors"

	"github.com/jobdir/jobdir/statefs"
)

// CountStates counts live and ended operations by status. It counts each operation once, even if
// it ends during the call. While the index is being built, it counts live operations only.
func (s *Store) CountStates(ctx context.Context, live *LiveView) (map[statefs.State]int, error) {
	states := make(map[statefs.State]int)
	for _, state := range statefs.States() {
		if state.Terminal() {
			states[state] = 0
		}
	}
	seen := live.countStates(states)
	defer seen.close(live.Index)
	err := s.awaitApplied(ctx)
	if err == nil {
		err = s.view(func(x index) error {
			seen.resolveStates(states, live, func(id []byte) bool { return x.id.Get(id) != nil })
			return x.eachCounters(func(d dimensions, c counters) { states[statefs.State(d.status)] += int(c.n) })
		})
	}
	if errors.Is(err, ErrNotReady) {
		seen.resolveStates(states, live, func([]byte) bool { return false })
		for state := range states {
			if state.Terminal() {
				delete(states, state)
			}
		}
		return states, nil
	}
	return states, err
}

// countStates adds the rows of Index atomically, except where Rows and Hidden replace them. The
// caller must call close.
func (v *LiveView) countStates(states map[statefs.State]int) *liveSnapshot {
	g, l := v.newSnapshot(), v.Index
	if l == nil {
		return g
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.register(g)
	for _, c := range l.counts {
		states[statefs.State(c.status)] += c.n
	}
	for key := range g.hidden {
		if block, at, has := l.find(key[:]); has {
			states[statefs.State(l.blocks[block][at].count.status)]--
		}
	}
	return g
}

// resolveStates adds what is neither in the index nor counted, and subtracts what has entered the
// index since.
func (g *liveSnapshot) resolveStates(states map[statefs.State]int, v *LiveView, has func(id []byte) bool) {
	counted := make(map[liveKey]bool)
	for _, rows := range [][]Packed{v.Rows, v.Hidden} {
		for _, row := range rows {
			if key, r, ok := keyOfRow(row); ok && !counted[key] {
				counted[key] = true
				if !has(key[8:]) {
					states[statefs.State(r.status)]++
				}
			}
		}
	}
	for i, e := range g.close(v.Index) {
		if g.hidden[e.key] || counted[e.key] {
			continue
		}
		counted[e.key] = true
		switch gone := has(e.key[8:]); {
		case i < g.alreadyEnding && !gone:
			states[statefs.State(e.count.status)]++
		case i >= g.alreadyEnding && gone:
			states[statefs.State(e.count.status)]--
		}
	}
	for state, n := range states {
		if n == 0 && !state.Terminal() {
			delete(states, state)
		}
	}
}
