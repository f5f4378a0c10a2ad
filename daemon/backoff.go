package daemon

import (
	"math"
	"time"

	"github.com/jobdir/jobdir/catalog"
)

// backoff returns the wait after failure n, counted from 1: min(cap, initial*factor^(n-1)),
// shortened by a random part of at most jitter of it. lot selects that part: 0 is the longest wait,
// and lot is below 1. It is a pure function; the caller stores the outcome, so that a restart does
// not draw again.
func backoff(r catalog.Retry, n int, lot float64) time.Duration {
	if r.Initial <= 0 {
		return 0
	}
	longest := float64(r.Cap)
	wait := float64(r.Initial) * math.Pow(r.Factor, float64(max(n, 1)-1))
	if !(wait < longest) { // also if it is infinite or NaN
		wait = longest
	}
	return time.Duration(wait * (1 - r.Jitter*lot))
}
