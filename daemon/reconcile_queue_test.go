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

// TestReconcilesNeverOverlapAndNeverMiss enqueues a few IDs from many goroutines: reconciles of one
// ID never overlap, and a reconcile always starts after the last enqueue.
func TestReconcilesNeverOverlapAndNeverMiss(t *testing.T) {
	t.Parallel()
	const ids, wishes = 5, 2000
	var busy [ids + 1]atomic.Int32
	var wished, seen [ids + 1]atomic.Int64
	l := newReconcileQueue(func(id statefs.ID, _ statefs.NameSet) {
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
				l.enqueue(testID(t, n))
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
	if len(l.pending) != 0 || len(l.queue) != 0 {
		t.Errorf("left over: %v %v", l.pending, l.queue)
	}
	l.enqueue(testID(t, 1))
	if l.workers != 0 {
		t.Error("a look after the close")
	}
}

func TestEnqueueDuringReconcileMakesOneMore(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	var count int
	l := newReconcileQueue(func(statefs.ID, statefs.NameSet) {
		count++
		entered <- struct{}{}
		<-leave
	})
	l.enqueue(testID(t, 1))
	<-entered
	for range 100 {
		l.enqueue(testID(t, 1))
	}
	leave <- struct{}{}
	<-entered
	leave <- struct{}{}
	l.wait()
	if count != 2 {
		t.Errorf("%d looks, want 2", count)
	}
}

func TestReconcileGetsAllEnqueuedNames(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan statefs.NameSet), make(chan struct{})
	l := newReconcileQueue(func(_ statefs.ID, names statefs.NameSet) {
		entered <- names
		<-leave
	})
	next := func(want statefs.NameSet) {
		t.Helper()
		if got := <-entered; got != want {
			t.Errorf("told of %b, want %b", got, want)
		}
	}
	id := testID(t, 1)
	l.enqueueNames(id, 1)
	next(1)
	l.enqueueNames(id, 2)
	l.enqueueNames(id, 4)
	leave <- struct{}{}
	next(6) // without 1, which the reconcile before had
	l.enqueueNames(id, 0)
	leave <- struct{}{}
	next(0)
	l.enqueueNames(id, 8)
	l.enqueue(id)
	leave <- struct{}{}
	next(statefs.AllNames)
	leave <- struct{}{}
	l.wait()
}

// TestDelayedReconcilesDoNotAddUp enqueues a failing operation a hundred times: it is still retried
// once a second, not a hundred times.
func TestDelayedReconcilesDoNotAddUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		id := testID(t, 1)
		count := 0
		var l *reconcileQueue
		l = newReconcileQueue(func(id statefs.ID, _ statefs.NameSet) {
			count++
			l.enqueueAfter(id, time.Second)
		})
		for range 100 {
			l.enqueue(id)
			l.wait()
		}
		at := time.NewTimer(10*time.Second + time.Millisecond)
		<-at.C
		synctest.Wait()
		if count != 110 {
			t.Errorf("%d looks for 100 wishes and 10 seconds", count)
		}
		l.enqueueAfter(id, time.Hour)        // the earlier delayed reconcile stays
		l.enqueueAfter(id, time.Millisecond) // this is earlier and replaces it
		at.Reset(2 * time.Millisecond)
		<-at.C
		synctest.Wait()
		if count != 111 {
			t.Errorf("%d looks", count)
		}
		l.close()
		at.Reset(time.Minute)
		<-at.C
		if l.enqueueAfter(id, 0); count != 111 || len(l.delayed) != 0 {
			t.Errorf("%d looks after the end, %d to come", count, len(l.delayed))
		}
	})
}
