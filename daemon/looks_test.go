package daemon

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

func testID(t *testing.T, n uint64) statefs.ID {
	t.Helper()
	id, err := statefs.MakeID("test-looks", time.Date(2025, 11, 26, 13, 22, 0, 0, time.UTC), 1, n)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestLooksNeverOverlapAndNeverMiss wants the same few IDs from many goroutines: no two looks at one ID overlap, and a look that
// begins after the last wish always comes.
func TestLooksNeverOverlapAndNeverMiss(t *testing.T) {
	t.Parallel()
	const ids, wishes = 5, 2000
	var busy [ids + 1]atomic.Int32
	var wished, seen [ids + 1]atomic.Int64
	l := newLooks(func(id statefs.ID, _ statefs.Names) {
		n := id.Sequence()
		if busy[n].Add(1) != 1 {
			t.Errorf("two looks at %s at once", id)
		}
		seen[n].Store(wished[n].Load())
		busy[n].Add(-1)
	})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range wishes {
				n := uint64(i%ids + 1)
				wished[n].Add(1)
				l.want(testID(t, n))
			}
		})
	}
	group.Wait()
	l.wait()
	for n := 1; n <= ids; n++ {
		if seen[n].Load() != wished[n].Load() {
			t.Errorf("ID %d: the last look saw %d of %d wishes", n, seen[n].Load(), wished[n].Load())
		}
	}
	l.close()
	if len(l.wishes) != 0 || len(l.queue) != 0 {
		t.Errorf("left over: %v %v", l.wishes, l.queue)
	}
	l.want(testID(t, 1))
	if l.workers != 0 {
		t.Error("a look after the close")
	}
}

func TestWishesDuringALookMakeOneMore(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	var count int
	l := newLooks(func(statefs.ID, statefs.Names) {
		count++
		entered <- struct{}{}
		<-leave
	})
	l.want(testID(t, 1))
	<-entered
	for range 100 {
		l.want(testID(t, 1))
	}
	leave <- struct{}{}
	<-entered
	leave <- struct{}{}
	l.wait()
	if count != 2 {
		t.Errorf("%d looks, want 2", count)
	}
}

func TestALookIsToldOfAllThatWasWishedFor(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan statefs.Names), make(chan struct{})
	l := newLooks(func(_ statefs.ID, names statefs.Names) {
		entered <- names
		<-leave
	})
	next := func(want statefs.Names) {
		t.Helper()
		if got := <-entered; got != want {
			t.Errorf("told of %b, want %b", got, want)
		}
	}
	id := testID(t, 1)
	l.wantNames(id, 1)
	next(1)
	l.wantNames(id, 2)
	l.wantNames(id, 4)
	leave <- struct{}{}
	next(6) // and not of the 1, which the look before was about
	l.wantNames(id, 0)
	leave <- struct{}{}
	next(0)
	l.wantNames(id, 8)
	l.want(id)
	leave <- struct{}{}
	next(statefs.AllNames)
	leave <- struct{}{}
	l.wait()
}

// TestRetriesDoNotAddUp has a hundred reasons to look at what fails: it is tried again once a second, not a hundred times.
func TestRetriesDoNotAddUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		id := testID(t, 1)
		count := 0
		var l *looks
		l = newLooks(func(id statefs.ID, _ statefs.Names) {
			count++
			l.retry(id, time.Second)
		})
		for range 100 {
			l.want(id)
			l.wait()
		}
		at := time.NewTimer(10*time.Second + time.Millisecond)
		<-at.C
		synctest.Wait()
		if count != 110 {
			t.Errorf("%d looks for 100 wishes and 10 seconds", count)
		}
		l.retry(id, time.Hour)        // the one that is due comes first
		l.retry(id, time.Millisecond) // and so does this one
		at.Reset(2 * time.Millisecond)
		<-at.C
		synctest.Wait()
		if count != 111 {
			t.Errorf("%d looks", count)
		}
		l.close()
		at.Reset(time.Minute)
		<-at.C
		if l.retry(id, 0); count != 111 || len(l.retries) != 0 {
			t.Errorf("%d looks after the end, %d to come", count, len(l.retries))
		}
	})
}
