package history

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobdir/jobdir/statefs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests; it is reached only when a test fails.
const patience = 60 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is a storage with an index; the test acts as its daemon.
type rig struct {
	*Store
	t     *testing.T
	dir   string
	clock time.Time
	tree  *statefs.Tree
	owner *statefs.Owner
	stop  func()
}

// noon is the time at which the tests begin.
var noon = time.Date(2025, 11, 26, 12, 0, 0, 0, time.Local)

func setup(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: filepath.Join(t.TempDir(), "storage"), clock: noon}
	var err error
	r.tree, err = statefs.Open(r.dir, statefs.Options{
		Durability: statefs.Process,
		Now:        func() time.Time { return r.clock },
	})
	must(t, err)
	t.Cleanup(func() { must(t, r.tree.Close()) })
	r.owner, err = statefs.Own(r.tree)
	must(t, err)
	t.Cleanup(func() { must(t, r.owner.Release()) })
	r.open()
	return r
}

// open opens the index and waits until it is complete.
func (r *rig) open() {
	r.t.Helper()
	r.openWith(func(*Store) {})
}

// openWith is open with a function that configures the Store.
func (r *rig) openWith(set func(*Store)) {
	r.t.Helper()
	var err error
	r.Store, err = Open(r.owner, nil)
	must(r.t, err)
	set(r.Store)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	store := r.Store
	go func() {
		defer close(done)
		_ = store.Run(ctx)
	}()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		<-done
		must(r.t, store.Close())
	}
	r.t.Cleanup(r.stop)
	r.CaughtUp()
	deadline := time.After(patience)
	for r.Ready() != nil {
		select {
		case <-r.Built():
		case <-deadline:
			r.t.Fatal("the index was not built")
		}
	}
}

// reopen stops the index and opens it again.
func (r *rig) reopen() {
	r.t.Helper()
	r.stop()
	r.open()
}

// end runs one operation from submit to end; change may alter its record before it is written.
func (r *rig) end(job string, status statefs.State, change ...func(*statefs.Record)) *statefs.Record {
	r.t.Helper()
	rec := r.unpublished(job, status, change...)
	r.Ended(rec)
	return rec
}

// live submits an operation.
func (r *rig) live(s statefs.Submission) *statefs.Record {
	r.t.Helper()
	rec, err := r.tree.Draft(s)
	must(r.t, err)
	must(r.t, r.tree.Publish(rec))
	return rec
}

func (r *rig) unpublished(job string, status statefs.State, change ...func(*statefs.Record)) *statefs.Record {
	r.t.Helper()
	r.clock = r.clock.Add(time.Second)
	rec := r.live(statefs.Submission{Group: "g", Job: job, Params: []byte(`{"title":"` + job + `"}`)})
	now := r.clock
	rec.Status, rec.FinishedAt = status, &now
	rec.Result = map[statefs.State]statefs.Result{
		statefs.Completed: statefs.Success, statefs.Failed: statefs.Failure, statefs.Cancelled: statefs.CancelledResult,
	}[status]
	for _, c := range change {
		c(rec)
	}
	number, err := r.Number()
	must(r.t, err)
	rec.FinishedSeq = number
	must(r.t, r.owner.WriteEnd(rec))
	must(r.t, r.owner.RemoveMarker(rec.ID, statefs.Queued))
	return rec
}

// viewOf is a view of rows without an index.
func viewOf(rows ...Packed) *LiveView { return &LiveView{Index: new(LiveIndex), Rows: rows} }

// list returns the whole result of a query, page by page, as "job" texts.
func (r *rig) list(q Query, live ...Packed) (jobs []string, first Page) {
	r.t.Helper()
	if q.Limit == 0 {
		q.Limit = 100
	}
	for n := 0; ; n++ {
		page, err := r.List(r.t.Context(), &q, viewOf(live...))
		must(r.t, err)
		if n == 0 {
			first = page
		}
		for _, e := range page.Entries {
			jobs = append(jobs, e.Row.Job)
		}
		if page.Next == nil {
			return jobs, first
		}
		q.After, err = ParseCursor(page.Next.String())
		must(r.t, err)
	}
}

// feed returns the whole feed after a number.
func (r *rig) feed(after uint64) (rows []Row, last uint64) {
	r.t.Helper()
	must(r.t, r.awaitApplied(r.t.Context()))
	ctx, cancel := context.WithCancel(r.t.Context())
	cancel() // do not wait
	rows, last, err := r.Finished(ctx, after, 1000)
	must(r.t, err)
	return rows, last
}

func (r *rig) file(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) exists(name string) bool {
	_, err := os.Lstat(r.file(name))
	return err == nil
}

func names(prefix string, from, to int) []string {
	var out []string
	for i := from; i >= to; i-- {
		out = append(out, fmt.Sprintf("%s%d", prefix, i))
	}
	return out
}

// awaitApplied returns when all changes enqueued before are in the index.
func (w *writer) awaitApplied(ctx context.Context) error {
	if err := w.Ready(); err != nil {
		return err
	}
	return w.do(ctx, change{})
}
