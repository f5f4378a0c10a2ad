package watch

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/jobdir/jobdir/internal/prooftest"
)

// unreliable sits between the kernel and a Dir. It drops, doubles, delays or swaps a third of the
// events and, like the kernel, reports lost events later by an overflow. It also sends overflows
// without a loss.
type unreliable struct {
	random    *rand.Rand
	events    chan fsnotify.Event
	faults    chan error
	lost      bool
	held      []fsnotify.Event
	dropped   int
	doubled   int
	delayed   int
	overflows int
}

// interpose replaces the channels that a Dir reads; call it before Run. The layer ends with the
// context or the watcher.
func interpose(d *Dir[string], random *rand.Rand) *unreliable {
	u := &unreliable{random: random, events: make(chan fsnotify.Event), faults: make(chan error)}
	d.watcher.Events, d.watcher.Errors = u.events, u.faults
	return u
}

// run passes events on until it has seen the name that is created last. Then it sends the delayed
// events and reports the loss.
func (u *unreliable) run(kernel <-chan fsnotify.Event, last string) {
	for event := range kernel {
		u.pass(event)
		if filepath.Base(event.Name) == last {
			break
		}
	}
	for _, event := range u.held {
		u.events <- event
	}
	if u.lost {
		u.overflow()
	}
}

func (u *unreliable) pass(event fsnotify.Event) {
	switch u.random.IntN(14) {
	case 0, 1:
		u.dropped++
		u.lost = true
	case 2:
		u.doubled++
		u.events <- event
		u.events <- event
	case 3:
		u.delayed++
		u.held = append(u.held, event)
	case 4:
		u.events <- event
		u.overflow()
	default:
		u.events <- event
	}
	if len(u.held) > 0 && u.random.IntN(5) == 0 {
		at := u.random.IntN(len(u.held))
		u.events <- u.held[at]
		u.held = slices.Delete(u.held, at, at+1)
	}
}

func (u *unreliable) overflow() {
	u.overflows++
	u.lost = false
	u.faults <- fsnotify.ErrEventOverflow
}

// TestUnreliableEvents changes files under a watch whose events are dropped, doubled, delayed and
// swapped. A consumer that checks the reported keys, and everything on a rescan, must know the
// final content of the folder.
func TestUnreliableEvents(t *testing.T) {
	t.Parallel()
	runs := prooftest.Count(10, 40, 500)
	var dropped, doubled, delayed, overflows int
	for range runs {
		u := unreliableRun(t, uint64(time.Now().UnixNano()))
		dropped, doubled, delayed, overflows = dropped+u.dropped, doubled+u.doubled, delayed+u.delayed, overflows+u.overflows
	}
	t.Logf("%d runs: %d events dropped, %d doubled, %d delayed and swapped, %d overflows, nothing missed", runs, dropped,
		doubled, delayed, overflows)
}

func unreliableRun(t *testing.T, seed uint64) *unreliable {
	t.Helper()
	dir := t.TempDir()
	d := openDir(t, dir, Options{})
	if d.Mode().Name != ModeInotify {
		t.Skipf("no events here: %+v", d.Mode())
	}
	events := d.watcher.Events
	random := rand.New(rand.NewPCG(seed, 1))
	u := interpose(d, rand.New(rand.NewPCG(seed, 2)))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := d.Run(ctx); err != nil {
			t.Errorf("seed %d: Run: %v", seed, err)
		}
	})
	passed := make(chan struct{})
	wg.Go(func() {
		u.run(events, "op-last")
		close(passed)
	})
	known := make(map[string]bool)
	look := func(name string) {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			known[name] = true
		} else {
			delete(known, name)
		}
	}
	take := func() {
		keys, rescan := d.Take()
		if rescan {
			for name := range maps.Clone(known) {
				look(name)
			}
			keys = append(keys, list(t, dir)...)
		}
		for _, key := range keys {
			look(key)
		}
	}
	for range 60 {
		change(t, dir, random)
		if random.IntN(4) == 0 {
			take()
		}
	}
	write(t, filepath.Join(dir, "op-last"), "")
	select {
	case <-passed:
	case <-time.After(patience):
		t.Fatalf("seed %d: the last change is not announced", seed)
	}
	cancel()
	for !d.closed.Load() { // Run reads both channels until they are closed
		runtime.Gosched()
	}
	close(u.events)
	close(u.faults)
	wg.Wait()
	take()
	want := list(t, dir)
	if got := slices.Sorted(maps.Keys(known)); !slices.Equal(got, want) {
		t.Errorf("seed %d: the consumer knows %q, and there are %q", seed, got, want)
	}
	if stats := d.Stats(); stats.Overflows != uint64(u.overflows) || stats.Errors != 0 {
		t.Errorf("seed %d: %+v, want %d overflows", seed, stats, u.overflows)
	}
	return u
}

// change creates, renames or removes one of a few files.
func change(t *testing.T, dir string, random *rand.Rand) {
	t.Helper()
	name := func() string { return filepath.Join(dir, fmt.Sprintf("op-%d", random.IntN(8))) }
	switch random.IntN(4) {
	case 0:
		_ = os.Remove(name()) // it may not be there
	case 1:
		_ = os.Rename(name(), name()) // it may not be there
	default:
		write(t, name(), "")
	}
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
