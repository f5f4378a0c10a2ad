package events

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a storage with an event log.
type bench struct {
	t       *testing.T
	owner   *statefs.Owner
	jump    atomic.Int64           // how far the clock is from the right time, in nanoseconds
	hold    atomic.Pointer[func()] // called once when the clock is read next
	options Options
	log     *Log
	taken   map[*Reader]*[]Frame // what came with an event that was waited for
}

func setup(t *testing.T, options Options) *bench {
	t.Helper()
	b := &bench{t: t, options: options, taken: make(map[*Reader]*[]Frame)}
	tree, err := statefs.Open(filepath.Join(t.TempDir(), "storage"), statefs.Options{Now: func() time.Time {
		if hold := b.hold.Swap(nil); hold != nil {
			(*hold)()
		}
		return time.Now().Add(time.Duration(b.jump.Load()))
	}})
	if err != nil {
		t.Fatal(err)
	}
	if b.owner, err = statefs.Own(tree); err != nil {
		t.Fatal(err)
	}
	b.open()
	t.Cleanup(func() {
		if err := b.log.Close(); err != nil {
			t.Errorf("close the log: %v", err)
		}
		if err := b.owner.Release(); err != nil {
			t.Errorf("release: %v", err)
		}
		if err := tree.Close(); err != nil {
			t.Errorf("close the tree: %v", err)
		}
	})
	return b
}

func (b *bench) open() {
	b.t.Helper()
	var err error
	if b.log, err = Open(b.owner, b.options); err != nil {
		b.t.Fatal(err)
	}
}

// crash leaves the log as a daemon does that is killed, and opens it again.
func (b *bench) crash() {
	b.t.Helper()
	close(b.log.quit)
	<-b.log.ended
	if err := b.log.writer.closeFile(); err != nil {
		b.t.Fatal(err)
	}
	b.open()
}

func (b *bench) reopen() {
	b.t.Helper()
	if err := b.log.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.open()
}

// publish publishes events of the given jobs, and returns when they are in the log.
func (b *bench) publish(jobs ...string) {
	b.t.Helper()
	r := b.log.Follow(Filter{}, Now)
	defer r.Close()
	for _, job := range jobs {
		b.log.Publish(api.Event{Type: Transition, Group: "g", Job: job})
	}
	for left := len(jobs); left > 0; {
		if b.next(r).Type != Missing {
			left--
		}
	}
}

// next waits for the next event of a reader.
func (b *bench) next(r *Reader) Frame {
	b.t.Helper()
	return b.some(r, 1)[0]
}

// some waits for the next events of a reader.
func (b *bench) some(r *Reader, count int) []Frame {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	all := b.taken[r]
	if all == nil {
		all = new([]Frame)
		b.taken[r] = all
	}
	for len(*all) < count {
		wake := r.Wake()
		frames, more := r.Take()
		*all = append(*all, frames...)
		if more || len(*all) >= count {
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			b.t.Fatalf("%d of %d events came", len(*all), count)
		}
	}
	out := (*all)[:count]
	*all = (*all)[count:]
	return out
}
