package daemon

import (
	"math"
	"time"

	"github.com/jobdir/jobdir/catalog"
)

// backoff is how long is waited after failure n, counted from 1: min(cap, initial*factor^(n-1)), of which the part jitter is left to chance.
// lot is where in that part it falls, 0 for the longest wait and below 1. It is a pure function; the outcome is stored, so that a
// restart does not draw again.
func backoff(r catalog.Retry, n int, lot float64) time.Duration {
	if r.Initial <= 0 {
		return 0
	}
	longest := float64(r.Cap)
	wait := float64(r.Initial) * math.Pow(r.Factor, float64(max(n, 1)-1))
	if !(wait < longest) { // also when it is too large for a number
		wait = longest
	}
	return time.Duration(wait * (1 - r.Jitter*lot))
}
