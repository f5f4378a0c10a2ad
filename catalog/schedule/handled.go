package schedule

import (
	"slices"
	"time"
)

// Missed decides what happens to slots that passed while no daemon was running.
type Missed string

// The values of missed.
const (
	MissedSkip Missed = "skip" // they are gone
	MissedOnce Missed = "once" // the newest of them fires, once for all (default)
	MissedAll  Missed = "all"  // each fires, the newest MaxMissed of them
)

// Overlap decides what happens to a slot when the operation of an earlier one has not ended.
type Overlap string

// The values of overlap.
const (
	OverlapSkip   Overlap = "skip"            // the slot is passed over (default)
	OverlapQueue  Overlap = "queue"           // it waits until that has ended
	OverlapCancel Overlap = "cancel_previous" // that is cancelled, and it waits for the end
)

const (
	// MaxMissed bounds how many missed slots fire.
	MaxMissed = 100
	// Late is how late a slot may be and still counts as on time: a restart takes so long.
	Late = time.Minute
	// maxRanges bounds the ranges that are kept; the oldest go first. Each is a clock that was set, or a time without
	// a daemon.
	maxRanges = 32
	// century is further back than anybody was away.
	century = 100 * 365 * 24 * time.Hour
)

// Range is a range of nominal time, both ends included.
type Range struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

func (r Range) has(t time.Time) bool { return !t.Before(r.From) && !t.After(r.To) }

// Handled is the nominal time whose slots were dealt with: ranges that do not overlap, in order. It is not changed by
// its methods.
type Handled []Range

// Begin returns what is dealt with when a line is seen for the first time: what was before is no concern of it.
func Begin(now time.Time) Handled { return Handled{{now, now}} }

// Due returns the slots to fire at a time, oldest first, and the handled time after they have fired. It
// returns the same result until the caller stores that.
func (h Handled) Due(s *Spec, now time.Time, missed Missed) ([]time.Time, Handled) {
	last := -1 // the last range that is over
	for i, r := range h {
		if r.has(now) {
			return nil, h // the clock was ahead, and is behind it now
		}
		if r.To.Before(now) {
			last = i
		}
	}
	if last < 0 {
		return nil, h.with(Range{now, now}) // the clock was set back behind all that is known
	}
	most := MaxMissed
	if missed != MissedAll {
		most = 1
	}
	slots, more := newest(s, h[last].To, now, most)
	switch {
	case len(slots) == 0:
		return nil, h
	case missed == MissedSkip && now.Sub(slots[0]) > Late:
		return nil, h // gone; were the clock set back, it would be to come
	}
	end := slots[len(slots)-1]
	if more {
		return slots, h.with(Range{slots[0], end})
	}
	grown := slices.Clone(h)
	grown[last].To = end
	return slots, grown
}

// Until returns the same without what comes after t in the range that has it; false when none has.
func (h Handled) Until(t time.Time) (Handled, bool) {
	for i, r := range h {
		if r.has(t) {
			cut := slices.Clone(h)
			cut[i].To = t
			return cut, true
		}
	}
	return nil, false
}

// Next returns the first slot after now that is still to be fired, zero when there is none.
func (h Handled) Next(s *Spec, now time.Time) time.Time {
	t := s.Next(now)
	for _, r := range h {
		if !t.IsZero() && r.has(t) {
			t = s.Next(r.To)
		}
	}
	return t
}

func (h Handled) with(r Range) Handled {
	out := append(slices.Clone(h), r)
	slices.SortFunc(out, func(a, b Range) int { return a.From.Compare(b.From) })
	return out[max(0, len(out)-maxRanges):]
}

// newest returns the last slots after from and up to now, at most that many, in order, and whether there are
// more. It searches backwards in steps, so that a long period costs no more than a short one.
func newest(s *Spec, from, now time.Time, most int) (slots []time.Time, more bool) {
	for back := time.Minute; ; back *= 4 {
		begin := now.Add(-back)
		whole := !begin.After(from) || back > century
		if whole {
			begin = from
		}
		slots = slots[:0]
		count := 0
		for t := s.Next(begin); !t.IsZero() && !t.After(now); t = s.Next(t) {
			if count++; len(slots) == most {
				slots = append(slots[:0], slots[1:]...)
			}
			slots = append(slots, t)
		}
		if whole || count > most {
			return slots, count > most
		}
	}
}
