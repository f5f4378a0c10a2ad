package events

import (
	"sort"

	"github.com/jobdir/jobdir/statefs/api"
)

// encodedEvent is an event with its JSON line.
type encodedEvent struct {
	event *api.Event
	line  []byte // its JSON, with the newline
}

// ring holds the newest events: all with a number above base and up to last.
type ring struct {
	list       []encodedEvent
	first, len int
	base, last uint64
}

func newRing(size int, base uint64) ring {
	return ring{list: make([]encodedEvent, size), base: base, last: base}
}

func (r *ring) at(i int) *encodedEvent { return &r.list[(r.first+i)%len(r.list)] }

func (r *ring) add(events []encodedEvent) {
	for _, e := range events {
		if r.len == len(r.list) {
			r.base = r.at(0).event.Seq
			*r.at(0) = encodedEvent{}
			r.first = (r.first + 1) % len(r.list)
			r.len--
		}
		r.len++
		*r.at(r.len - 1) = e
		r.last = e.event.Seq
	}
}

// after returns at most that many events with a number above pos, which must not be below base.
func (r *ring) after(pos uint64, most int) []encodedEvent {
	i := sort.Search(r.len, func(i int) bool { return r.at(i).event.Seq > pos })
	out := make([]encodedEvent, 0, min(most, r.len-i))
	for ; i < r.len && len(out) < most; i++ {
		out = append(out, *r.at(i))
	}
	return out
}
