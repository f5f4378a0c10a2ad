package daemon

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/alarm"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	r := catalog.Retry{Initial: 5 * time.Second, Factor: 2, Cap: time.Minute, Jitter: 0.5}
	for _, c := range []struct {
		n    int
		lot  float64
		want time.Duration
	}{
		{1, 0, 5 * time.Second},
		{2, 0, 10 * time.Second},
		{4, 0, 40 * time.Second},
		{5, 0, time.Minute},
		{1_000_000, 0, time.Minute},
		{1, 0.5, 3750 * time.Millisecond},
		{5, 1, 30 * time.Second},
		{0, 0, 5 * time.Second},
		{-3, 0, 5 * time.Second},
	} {
		if got := backoff(r, c.n, c.lot); got != c.want {
			t.Errorf("after failure %d, lot %g: %s, want %s", c.n, c.lot, got, c.want)
		}
	}
	if got := backoff(catalog.Retry{MaxAttempts: 3}, 7, 0.3); got != 0 {
		t.Errorf("without initial it waits %s", got)
	}
}

// For any retry settings and any random number, a wait is at most the cap and at least what jitter
// leaves. Without the random part, the first wait is the initial one, and no wait is shorter than
// the one before.
func TestBackoffKeepsItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := catalog.Retry{
			Initial: time.Duration(rapid.Int64Range(1, int64(720*time.Hour)).Draw(t, "initial")),
			Factor:  rapid.Float64Range(1, 100).Draw(t, "factor"),
			Jitter:  rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		r.Cap = max(r.Initial, time.Duration(rapid.Int64Range(1, int64(720*time.Hour)).Draw(t, "cap")))
		n := rapid.IntRange(1, 1_000_000).Draw(t, "n")
		lot := rapid.Float64Range(0, 1).Draw(t, "lot")
		wait, whole := backoff(r, n, lot), backoff(r, n, 0)
		least := time.Duration(float64(whole)*(1-r.Jitter)) - 1
		if wait > whole || wait < least || whole > r.Cap || wait < 0 {
			t.Errorf("%+v: after failure %d, lot %g: %s of %s", r, n, lot, wait, whole)
		}
		if next := backoff(r, n+1, 0); next < whole {
			t.Errorf("%+v: %s after failure %d, and %s after the next", r, whole, n, next)
		}
		if r.Initial < r.Cap && n > 1 && r.Factor >= 2 && whole < r.Cap && whole < 2*backoff(r, n-1, 0)-2 {
			t.Errorf("%+v: %s after failure %d is not twice the one before", r, whole, n)
		}
		if first := backoff(r, 1, 0); first != r.Initial {
			t.Errorf("%+v: the first wait is %s", r, first)
		}
	})
}

// A job that fails every time for a day, with waits that grow to an hour: each attempt starts when
// its wait is over, to the nanosecond, and the day needs as many reconciles as attempts.
func TestBackoffOfADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := catalog.Retry{Initial: time.Minute, Factor: 2, Cap: time.Hour}
		var attempts []time.Duration
		var a *alarm.Alarms[string]
		a = alarm.New(time.Now, func() time.Duration { return time.Since(began) }, func(key string) {
			attempts = append(attempts, time.Since(began))
			a.Set(key, time.Now().Add(backoff(r, len(attempts), 0)), 0)
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { a.Serve(ctx, nil); close(done) }()
		a.Set("job", began, 0)
		<-time.After(24*time.Hour - 1)
		synctest.Wait()
		cancel()
		<-done
		minutes := []int{0, 1, 3, 7, 15, 31, 63} // then one each hour
		for len(minutes) < 7+22 {
			minutes = append(minutes, minutes[len(minutes)-1]+60)
		}
		var want []time.Duration
		for _, m := range minutes {
			want = append(want, time.Duration(m)*time.Minute)
		}
		if !slices.Equal(attempts, want) {
			t.Errorf("attempts at %v\nwant %v", attempts, want)
		}
	})
}
