package outbox

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// A target is down for an hour while a thousand entries wait. It is probed once per interval, and
// when it is up again, all entries are delivered at once.
func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many, away = 1000, time.Hour
		began := time.Now()
		var mu sync.Mutex
		tries, busy, most, done := 0, 0, 0, 0
		var last time.Time
		o := New(Config{Workers: 8, PerTarget: 8, Deliver: func(context.Context, statefs.EntryName) Outcome {
			mu.Lock()
			defer mu.Unlock()
			if time.Since(began) < away {
				tries++
				return Outcome{}
			}
			busy++
			most = max(most, busy)
			mu.Unlock()
			time.Sleep(time.Millisecond) //nolint:forbidigo // the clock of the bubble
			mu.Lock()
			busy--
			done++
			last = time.Now()
			return Outcome{Settled: true}
		}})
		for n := range many {
			o.Add(nameOf(t, n), at("a"), began)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { o.Run(ctx) })
		time.Sleep(2 * away) //nolint:forbidigo // the clock of the bubble
		cancel()
		running.Wait()
		if limit := 8 + int(away/ProbeInterval); tries > limit {
			t.Errorf("it was tried %d times while it was away, %d are enough", tries, limit)
		}
		if done != many || most != 8 {
			t.Errorf("%d were delivered, %d at once", done, most)
		}
		if late := last.Sub(began.Add(away)); late > 2*ProbeInterval {
			t.Errorf("the last was delivered %s after it came back", late)
		}
	})
}

func TestRunEndsWithWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := false
		o := New(Config{Deliver: func(ctx context.Context, _ statefs.EntryName) Outcome {
			<-ctx.Done()
			ended = true
			return Outcome{}
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { o.Run(ctx) })
		o.Add(nameOf(t, 1), at("a"), began)
		synctest.Wait()
		cancel()
		running.Wait()
		if !ended {
			t.Error("Run ended before its delivery")
		}
	})
}
