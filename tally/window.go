package tally

import (
	"math"
	"math/bits"
	"time"
)

// half is how long a Window gathers before what it has becomes the past.
const half = 10 * time.Minute

// WindowSeconds is how far back a Window looks at most.
const WindowSeconds = int(2 * half / time.Second)

// Window estimates percentiles of durations of the last ten to twenty minutes: what was added in the ten minutes that run, and in the
// ten before. It costs 5 KiB, whatever is added. The zero value is empty. It is for one goroutine at a time.
type Window struct {
	began     time.Time
	now, past *spread // nil while empty
}

// Add notes a duration at a time.
func (w *Window) Add(d time.Duration, now time.Time) {
	w.turn(now)
	if w.now == nil {
		w.now = new(spread)
	}
	w.now.note(d)
}

// turn lets go of what is too old. A clock that was set back begins anew.
func (w *Window) turn(now time.Time) {
	gone := now.Sub(w.began)
	switch {
	case gone >= 0 && gone < half:
	case gone >= half && gone < 2*half:
		w.began, w.past, w.now = w.began.Add(half), w.now, nil
	default:
		w.began, w.past, w.now = now, nil, nil
	}
}

func (w *Window) recent(now time.Time) (out spread) {
	w.turn(now)
	out.add(w.past)
	out.add(w.now)
	return out
}

// The buckets of a spread: each doubling of microseconds is cut into steps equal parts, so that what falls into one differs by 6 % at most.
const (
	steps     = 16
	stepBits  = 4
	doublings = 44 // 2^44 µs are half a year
)

// spread is how often durations were about so long.
type spread struct {
	counts [steps * (doublings - stepBits + 1)]uint32
	count  uint64
	most   time.Duration
}

func bucketOf(d time.Duration) int {
	us := uint64(max(d, 0) / time.Microsecond)
	if us < steps {
		return int(us)
	}
	exp := bits.Len64(us) - 1 // us is in [2^exp, 2^(exp+1)
	at := (exp-stepBits+1)*steps + int(us>>(exp-stepBits)) - steps
	return min(at, len(spread{}.counts)-1)
}

// middle is the duration that stands for a bucket.
func middle(at int) time.Duration {
	if at < steps {
		return time.Duration(at) * time.Microsecond
	}
	shift := at/steps - 1
	low := uint64(steps+at%steps) << shift
	return time.Duration(low+1<<shift/2) * time.Microsecond
}

func (s *spread) note(d time.Duration) {
	s.counts[bucketOf(d)]++
	s.count++
	s.most = max(s.most, d)
}

func (s *spread) add(other *spread) {
	if other == nil {
		return
	}
	for i, n := range other.counts {
		s.counts[i] += n
	}
	s.count += other.count
	s.most = max(s.most, other.most)
}

// quantile returns the duration that a part of all do not exceed.
func (s *spread) quantile(part float64) time.Duration {
	rank := uint64(math.Ceil(part * float64(s.count)))
	var seen uint64
	for i, n := range s.counts {
		if seen += uint64(n); seen >= rank && n > 0 {
			return min(middle(i), s.most)
		}
	}
	return s.most
}

// Times is how long something took: percentiles to 6 %, and the longest.
type Times struct {
	Count uint64  `json:"count"`
	P50   Seconds `json:"p50_seconds"`
	P90   Seconds `json:"p90_seconds"`
	P99   Seconds `json:"p99_seconds"`
	Max   Seconds `json:"max_seconds"`
}

func (s *spread) times() Times {
	if s.count == 0 {
		return Times{}
	}
	return Times{
		Count: s.count, P50: seconds(s.quantile(0.5)), P90: seconds(s.quantile(0.9)), P99: seconds(s.quantile(0.99)), Max: seconds(s.most),
	}
}
