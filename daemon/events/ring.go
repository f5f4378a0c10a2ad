package events

import (
	"slices"
	"sort"
)

// ring holds the newest events: all with a number above base and up to last.
type ring struct {
	list       []Frame
	most       int
	base, last uint64
}

func (r *ring) add(events []Frame) {
	for _, e := range events {
		r.list, r.last = append(r.list, e), e.Seq
	}
	if over := len(r.list) - r.most; over > 0 {
		r.base = r.list[over-1].Seq
		r.list = slices.Delete(r.list, 0, over)
	}
}

// after returns at most that many events with a number above pos, which must not be below base. It is never nil.
func (r *ring) after(pos uint64, most int) []Frame {
	list := r.list[sort.Search(len(r.list), func(i int) bool { return r.list[i].Seq > pos }):]
	return slices.Clone(list[:min(most, len(list))])
}
