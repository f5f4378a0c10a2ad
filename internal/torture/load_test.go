package torture

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// load are clients that submit and make requests, over HTTP and by file, until the daemon is gone.
type load struct {
	r      *rig
	ledger *ledger
	// sleepers are operations that never end by themselves; the clients pause, resume and cancel them.
	mu       sync.Mutex
	sleepers []statefs.ID
	// byTouch allows requests by file, whose acknowledgement is the existence of the file. It survives the
	// death of the daemon, but not a power cut.
	byTouch bool

	daemons  []*daemon // the most recent ones
	explains bool
}

// maxSleepers bounds how many sleepers run at once.
const maxSleepers = 8

// run puts load on a daemon until the returned function is called, which waits for pending calls.
func (l *load) run(d *daemon) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for range 2 {
		random := rand.New(rand.NewPCG(l.r.random.Uint64(), 2))
		clients.Go(func() { l.submits(ctx, d, random) })
	}
	random := rand.New(rand.NewPCG(l.r.random.Uint64(), 3))
	clients.Go(func() { l.requests(ctx, d, random) })
	return func() { cancel(); clients.Wait() }
}

func (l *load) submits(ctx context.Context, d *daemon, random *rand.Rand) {
	for ctx.Err() == nil {
		job := []string{"quick", "quick", "items", "sleep"}[random.IntN(4)]
		if job == "sleep" && !l.roomToSleep() {
			job = "quick"
		}
		op, err := d.Submit(ctx, "t", job, map[string]int{"n": random.IntN(1 << 50)})
		if err != nil {
			if !lost(err) {
				l.r.t.Errorf("submit: %v", err)
			}
			return
		}
		if err := l.ledger.submitted(op.ID, job); err != nil {
			l.r.t.Error(err)
		}
		if job == "sleep" {
			l.mu.Lock()
			l.sleepers = append(l.sleepers, op.ID)
			l.mu.Unlock()
		}
	}
}

func (l *load) roomToSleep() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sleepers) < maxSleepers
}

// lost reports whether an answer is missing because the daemon is gone or the test is over.
func lost(err error) bool {
	refused, ok := errors.AsType[*client.Error](err)
	return !ok || refused.Status >= 500 // it stops, or its disk fails
}

func (l *load) requests(ctx context.Context, d *daemon, random *rand.Rand) {
	for ctx.Err() == nil {
		id, ok := l.pick(random)
		if !ok {
			select {
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
			continue
		}
		ask := []statefs.Action{statefs.Pause, statefs.Resume, statefs.Pause, statefs.Resume, statefs.Cancel}[random.IntN(5)]
		if ask == statefs.Cancel {
			l.forget(id)
		}
		var err error
		if l.byTouch && random.IntN(2) == 0 {
			err = l.r.touch(id, ask)
		} else {
			_, err = d.Request(ctx, id, ask, time.Duration(random.IntN(2))*patience)
		}
		l.ledger.requested(id, ask, err == nil)
		if err != nil {
			if !lost(err) {
				l.r.t.Errorf("%s %s: %v", ask, id, err)
			}
			return
		}
	}
}

func (l *load) pick(random *rand.Rand) (statefs.ID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sleepers) == 0 {
		return statefs.ID{}, false
	}
	return l.sleepers[random.IntN(len(l.sleepers))], true
}

func (l *load) forget(id statefs.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sleepers = slices.DeleteFunc(l.sleepers, func(other statefs.ID) bool { return other == id })
}

// touch makes a request as a person with a shell does.
func (r *rig) touch(id statefs.ID, ask statefs.Action) error {
	name := filepath.Join(r.dir, "jobs", statefs.RequestName(id, ask))
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o640)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		now := time.Now()
		if err := os.Chtimes(name, now, now); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		// The daemon took it before; it may have been an older one.
	}
}

// settle waits until every acknowledged request has taken effect.
func (l *load) settle(t *testing.T, tree *statefs.Tree, d *daemon) {
	t.Helper()
	l.explain(t, d)
	l.ledger.each(func(id statefs.ID, op *acknowledged) {
		if op.wants == "" {
			return
		}
		until(t, fmt.Sprintf("%s: %s has its effect; asked were %q", id, op.wants, op.history), func() bool {
			state, err := tree.State(id)
			if rec, err := tree.ReadRecord(id); err == nil && rec.Status == statefs.Failed {
				t.Fatalf("%s failed: %+v", id, rec.Error)
			}
			switch op.wants {
			case statefs.Pause:
				return state == statefs.Paused
			case statefs.Resume:
				return state == statefs.Running || state == statefs.Queued
			case statefs.Cancel, statefs.ForceCancel:
				return errors.Is(err, statefs.ErrNotLive)
			case statefs.Retry, statefs.Skip, statefs.Set, statefs.Approve, statefs.Reject, statefs.Prioritize,
				statefs.Delete, statefs.Pin:
			}
			return true
		})
	})
}

// endUnknown cancels sleepers whose submit was not answered, so that they do not accumulate.
func (l *load) endUnknown(t *testing.T, tree *statefs.Tree, d *daemon) {
	t.Helper()
	listing, err := tree.List()
	must(t, err)
	for id := range listing.IDs() {
		l.mu.Lock()
		known := slices.Contains(l.sleepers, id)
		l.mu.Unlock()
		if rec, err := readRecord(tree, id, anyRecord); known || err != nil || rec.Job != "sleep" {
			continue
		}
		_, err := d.Request(t.Context(), id, statefs.Cancel, 0)
		if refused, ok := errors.AsType[*client.Error](err); err != nil && (!ok || refused.Status != 404) {
			t.Errorf("cancel %s: %v", id, err)
		}
	}
}

// finish ends all operations: it cancels the sleepers, and then checks that every acknowledged operation has
// ended as expected and nothing is left over.
func (l *load) finish(t *testing.T, tree *statefs.Tree, d *daemon) {
	t.Helper()
	listing, err := tree.List()
	must(t, err)
	ids := listing.IDs() // including those whose submit was not answered
	l.ledger.each(func(id statefs.ID, _ *acknowledged) {
		// Check by name: a listing may miss a marker that is renamed during it.
		if _, err := tree.State(id); err == nil {
			ids[id] = statefs.AllNames
		}
	})
	for id := range ids {
		err := l.r.finishOne(t, tree, d, id)
		if errors.Is(err, fs.ErrNotExist) && !l.ledger.knows(id) {
			continue // after a power cut a marker without an acknowledged submit may exist without its record, until the sweep
		}
		if err != nil {
			t.Error(err)
		}
	}
	var left []statefs.Entry
	defer func() {
		for _, e := range left {
			rec, err := tree.ReadRecord(e.ID)
			t.Logf("%s, known %t, is left: %+v, %v", e.File, l.ledger.knows(e.ID), rec, err)
		}
	}()
	until(t, "nothing is live", func() bool {
		listing, err := tree.List()
		left = listing.Markers
		return err == nil && len(left) == 0
	})
	l.ledger.each(func(id statefs.ID, op *acknowledged) {
		// Check by name too: a listing may miss a marker that is renamed during it.
		until(t, id.String()+" has ended", func() bool {
			_, err := tree.State(id)
			return errors.Is(err,
				statefs.ErrNotLive)
		})
		rec, err := readRecord(tree, id, endedRecord)
		must(t, err)
		want := statefs.Completed
		if op.cancelled || op.job == "sleep" || op.job == "survivor" {
			want, op.cancelled = statefs.Cancelled, true
		}
		if rec.Status != want && !op.mayFail(rec) && (want != statefs.Cancelled || rec.Status != statefs.Completed) {
			t.Errorf("%s (%s) ended as %s, want %s: %+v", id, op.job, rec.Status, want, rec.Error)
		}
		if err := op.checkEnd(rec); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	})
	l.checkFeed(t, d)
}

// checkFeed checks that every acknowledged operation is in the completion feed once. All have ended.
func (l *load) checkFeed(t *testing.T, d *daemon) {
	t.Helper()
	found := make(map[statefs.ID]int)
	after := uint64(0)
	for more := true; more; {
		until(t, "the completion feed is there", func() bool { // it is not while the index is built
			ends, last, err := d.Finished(t.Context(), after, 0)
			for _, end := range ends {
				if !end.NeedsPerson {
					found[end.ID]++
				}
			}
			after, more = last, len(ends) > 0 || err != nil
			return err == nil
		})
	}
	l.ledger.each(func(id statefs.ID, _ *acknowledged) {
		if n := found[id]; n != 1 {
			t.Errorf("%s has ended and is in the completion feed %d times", id, n)
		}
	})
}

func (r *rig) finishOne(t *testing.T, tree *statefs.Tree, d *daemon, id statefs.ID) error {
	t.Helper()
	rec, err := readRecord(tree, id, anyRecord)
	if err != nil {
		return err
	}
	ask := statefs.Cancel
	if rec.Job != "sleep" && rec.Job != "survivor" {
		if state, err := tree.State(id); err != nil || state != statefs.Paused {
			return nil //nolint:nilerr // it has ended, or does so by itself
		}
		ask = statefs.Resume
	}
	var refused *client.Error
	until(t, "the daemon takes the request", func() bool { // 503 asks for a retry: the daemon may be out of descriptors
		_, err = d.Request(t.Context(), id, ask, 0)
		return !errors.As(err, &refused) || refused.Status != http.StatusServiceUnavailable
	})
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return nil // it has ended
	}
	return err
}

// explain logs the output of the most recent daemons if the test has failed.
func (l *load) explain(t *testing.T, d *daemon) {
	t.Helper()
	l.daemons = append(l.daemons, d)
	l.daemons = l.daemons[max(0, len(l.daemons)-2):]
	if l.explains {
		return
	}
	l.explains = true
	t.Cleanup(func() {
		if t.Failed() {
			for _, d := range l.daemons {
				t.Logf("daemon %d said: %s", d.cmd.Process.Pid, d.stderr)
			}
		}
	})
}

// submit submits a job and records the acknowledgement.
func (l *load) submit(t *testing.T, d *daemon, job string) statefs.ID {
	t.Helper()
	op, err := d.Submit(t.Context(), "t", job, nil)
	must(t, err)
	must(t, l.ledger.submitted(op.ID, job))
	return op.ID
}

// requestAction makes a request, returns when it took effect, and records that.
func (l *load) requestAction(t *testing.T, d *daemon, id statefs.ID, ask statefs.Action) {
	t.Helper()
	_, err := d.Request(t.Context(), id, ask, patience)
	must(t, err)
	l.ledger.requested(id, ask, true)
}
