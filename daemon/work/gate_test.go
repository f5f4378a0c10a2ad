package work

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func newGate() (*gate, <-chan struct{}) {
	stopped := make(chan struct{}, 16)
	return &gate{onStopped: func() { stopped <- struct{}{} }}, stopped
}

func TestSleepDoesNotCountPausedTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, stopped := newGate()
		began := time.Now()
		var slept time.Duration
		done := make(chan error)
		go func() {
			err := g.sleep(t.Context(), insideItem, 10*time.Second)
			slept = time.Since(began)
			done <- err
		}()
		time.AfterFunc(4*time.Second, func() { g.Pause() })
		<-stopped
		if at := time.Since(began); at != 4*time.Second {
			t.Errorf("the pause took effect after %s, want at once", at)
		}
		time.AfterFunc(time.Hour, g.Resume)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if want := time.Hour + 10*time.Second; slept != want {
			t.Errorf("slept %s, want %s", slept, want)
		}
	})
}

func TestCheckpointEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGate()
		ctx, cancel := context.WithCancelCause(t.Context())
		g.Pause()
		done := make(chan error)
		go func() { done <- g.checkpoint(ctx, insideItem) }()
		synctest.Wait()
		cancel(ErrCancelled)
		if err := <-done; !errors.Is(err, ErrCancelled) {
			t.Errorf("checkpoint returned %v", err)
		}
		if g.waitingInItem+g.waitingBetweenItems != 0 {
			t.Errorf("%d still wait", g.waitingInItem+g.waitingBetweenItems)
		}
	})
}

// TestParallelItemsStopTogether runs three items: the work is stopped once none of them runs.
func TestParallelItemsStopTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, stopped := newGate()
		release := make([]chan struct{}, 3)
		for i := range release {
			release[i] = make(chan struct{})
			g.begin()
			go func() {
				<-release[i]
				if i == 2 {
					g.end() // this one ends while the others wait
					return
				}
				if err := g.checkpoint(t.Context(), insideItem); err != nil {
					t.Error(err)
				}
				g.end()
			}()
		}
		if g.Pause() {
			t.Error("stopped while three items are under way")
		}
		for i := range release {
			synctest.Wait()
			if g.IsStopped() {
				t.Errorf("stopped while %d items are under way", len(release)-i)
			}
			close(release[i])
		}
		<-stopped
		if !g.IsStopped() {
			t.Error("not stopped")
		}
		g.Resume()
		synctest.Wait()
		if g.IsStopped() || g.openItems != 0 {
			t.Errorf("after the resume: stopped %v, open %d", g.IsStopped(), g.openItems)
		}
	})
}

func TestResumeBeforeTheCheckpoint(t *testing.T) {
	t.Parallel()
	g, stopped := newGate()
	g.begin()
	g.Pause()
	g.Resume()
	if err := g.checkpoint(t.Context(), insideItem); err != nil {
		t.Error(err)
	}
	select {
	case <-stopped:
		t.Error("told to be stopped")
	default:
	}
}

// TestWaiterWithoutItem has one worker between items and one in the middle of an item that
// continues.
func TestWaiterWithoutItem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, stopped := newGate()
		g.begin()
		g.Pause()
		go func() { _ = g.checkpoint(t.Context(), betweenItems) }()
		synctest.Wait()
		if g.IsStopped() {
			t.Error("stopped although an item moves")
		}
		g.end()
		<-stopped
		g.Resume()
	})
}
