package counts

import (
	"math"
	"math/bits"
	"time"

	"github.com/jobdir/jobdir/statefs/api"
)

// windowHalf is how long a Window collects before its current half becomes the past one.
const windowHalf = 10 * time.Minute

// WindowSeconds is the maximum period that a Window covers.
const WindowSeconds = int(2 * windowHalf / time.Second)

// Window estimates percentiles of durations over the last ten to twenty minutes: those added in the current
// ten minutes and in the ten before. It takes at most 5 KiB. The zero value is empty. It is not safe for
// concurrent use.
type Window struct {
	began     time.Time
	now, past *histogram // nil while empty
}

// Add records a duration at a time.
func (w *Window) Add(d time.Duration, now time.Time) {
	w.rotate(now)
	if w.now == nil {
		w.now = new(histogram)
	}
	w.now.observe(d)
}

// rotate drops the expired half. If the clock was set back, it starts empty.
func (w *Window) rotate(now time.Time) {
	gone := now.Sub(w.began)
	switch {
	case gone >= 0 && gone < windowHalf:
	case gone >= windowHalf && gone < 2*windowHalf:
		w.began, w.past, w.now = w.began.Add(windowHalf), w.now, nil
	default:
		w.began, w.past, w.now = now, nil, nil
	}
}

func (w *Window) recent(now time.Time) (out histogram) {
	w.rotate(now)
	out.add(w.past)
	out.add(w.now)
	return out
}

// The buckets of the histogram: each doubling of microseconds is divided into equal parts, so that the values
// of a bucket differ by at most 6 %.
const (
	steps     = 16
	stepBits  = 4
	doublings = 44 // 2^44 µs is half a year
)

// histogram counts durations by bucket.
type histogram struct {
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
	return min(at, len(histogram{}.counts)-1)
}

// bucketMiddle returns the duration that represents a bucket.
func bucketMiddle(at int) time.Duration {
	if at < steps {
		return time.Duration(at) * time.Microsecond
	}
	shift := at/steps - 1
	low := uint64(steps+at%steps) << shift
	return time.Duration(low+1<<shift/2) * time.Microsecond
}

func (s *histogram) observe(d time.Duration) {
	s.counts[bucketOf(d)]++
	s.count++
	s.most = max(s.most, d)
}

func (s *histogram) add(other *histogram) {
	if other == nil {
		return
	}
	for i, n := range other.counts {
		s.counts[i] += n
	}
	s.count += other.count
	s.most = max(s.most, other.most)
}

// quantile returns the duration that a fraction of all does not exceed.
func (s *histogram) quantile(part float64) time.Duration {
	rank := uint64(math.Ceil(part * float64(s.count)))
	var seen uint64
	for i, n := range s.counts {
		if seen += uint64(n); seen >= rank && n > 0 {
			return min(bucketMiddle(i), s.most)
		}
	}
	return s.most
}

func (s *histogram) times() api.Times {
	if s.count == 0 {
		return api.Times{}
	}
	return api.Times{
		Count: s.count, P50: seconds(s.quantile(0.5)), P90: seconds(s.quantile(0.9)), P99: seconds(s.quantile(0.99)),
		Max: seconds(s.most),
	}
}
