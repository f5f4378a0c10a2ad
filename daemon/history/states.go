package history

import (
	"errors"
	"maps"

	"github.com/jobdir/jobdir/statefs"
)

// CountStates counts live and ended operations by status. It counts each operation once, even if
// it ends during the call. While the index is being built, it counts live operations only.
func (s *Store) CountStates(live *LiveView) (states map[statefs.State]int, err error) {
	all, f := live.withHidden(), new(Query).filter()
	seen := all.snapshot(f, 1)
	defer seen.close(all.Index)
	unapplied, err := s.unapplied((*Row).isEnd)
	if err == nil {
		err = s.view(func(x index) error {
			late, has := x.late(unapplied)
			_, states, _ = seen.resolve(f, all, has, 0)
			for _, row := range late {
				if r, err := row.parse(); err == nil {
					states[statefs.State(r.status)]++
				}
			}
			for _, state := range statefs.States() {
				if state.Terminal() {
					states[state] += 0 // none is counted as 0
				} else if states[state] == 0 {
					delete(states, state)
				}
			}
			return x.eachCounters(func(d dimensions, c counters) { states[statefs.State(d.status)] += int(c.n) })
		})
	}
	if errors.Is(err, ErrNotReady) {
		_, states, _ = seen.resolve(f, all, nil, 0)
		maps.DeleteFunc(states, func(state statefs.State, n int) bool { return n == 0 || state.Terminal() })
		return states, nil
	}
	return states, err
}

// withHidden returns a view in which Rows has the hidden rows too, unless it has newer versions of them: an operation
// without a marker counts until it is in the index.
func (v *LiveView) withHidden() *LiveView {
	all := &LiveView{Index: v.Index}
	seen := make(map[liveKey]bool)
	for _, rows := range [][]Packed{v.Rows, v.Hidden} {
		for _, row := range rows {
			if key, ok := keyOfRow(row); ok && !seen[key] {
				seen[key] = true
				all.Rows = append(all.Rows, row)
			}
		}
	}
	return all
}
