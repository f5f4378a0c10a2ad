package torture

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/internal/faultfs"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

const listLength = 20

// listLoad are the submitted and acknowledged lists.
type listLoad struct {
	mu       sync.Mutex
	accepted [][]statefs.ID
}

// submit submits lists from two clients until the daemon is gone. Their operations are not due before
// tomorrow.
func (l *listLoad) submit(t *testing.T, d *daemon) (wait func()) {
	list := make([]client.Submission, listLength)
	for i := range list {
		list[i] = client.Submission{Job: "t/sleep", Params: map[string]int{"n": i}, Delay: 24 * time.Hour}
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for {
				made, err := d.SubmitList(t.Context(), list)
				if err != nil {
					return
				}
				ids := make([]statefs.ID, len(made))
				for i, one := range made {
					ids[i] = one.ID
				}
				l.mu.Lock()
				l.accepted = append(l.accepted, ids)
				l.mu.Unlock()
			}
		})
	}
	return all.Wait
}

// check checks the storage after a daemon has recovered it: all operations of an accepted list are scheduled,
// and of any other list all or none.
func (l *listLoad) check(t *testing.T, dir string) {
	t.Helper()
	tree, err := statefs.Open(dir, statefs.Options{})
	must(t, err)
	defer func() { must(t, tree.Close()) }()
	files, err := filepath.Glob(filepath.Join(dir, "operations", "*", "*.json"))
	must(t, err)
	there := map[statefs.ID]bool{}
	live := map[statefs.ID]int{}
	for _, file := range files {
		id, err := statefs.ParseID(strings.TrimSuffix(filepath.Base(file), ".json"))
		must(t, err)
		rec, err := tree.ReadRecord(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		must(t, err)
		there[id] = true
		if rec.Status.Live() && rec.Batch != nil {
			live[*rec.Batch]++
		}
	}
	for _, ids := range l.accepted {
		for _, id := range ids {
			if state, err := tree.State(id); err != nil || state != statefs.Scheduled || !there[id] {
				t.Fatalf("%s of a list that was accepted is %q, its record is there: %t, %v", id, state, there[id], err)
			}
		}
	}
	for first, count := range live {
		if count != listLength {
			t.Fatalf("of the list of %s there are %d of %d", first, count, listLength)
		}
	}
}

// TestListsAfterKills kills the daemon while it accepts lists: each list is complete or absent.
func TestListsAfterKills(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	l := &listLoad{}
	for range prooftest.Count(2, 6, 60) {
		d := r.start("--sweep-interval", "50ms")
		wait := l.submit(t, d)
		r.pause(d, 300*time.Millisecond)
		d.kill()
		wait()
		d = r.start()
		l.check(t, r.dir)
		d.stop(t)
	}
	figures.add(t, "lists acknowledged and found again", len(l.accepted))
}

// TestListsAfterPowerCuts cuts the power instead. The records of a list are not synced individually.
func TestListsAfterPowerCuts(t *testing.T) {
	t.Parallel()
	p := plug(t, faultfs.Empty())
	l := &listLoad{}
	for range prooftest.Count(2, 6, 60) {
		interval := "1h"
		if p.random.IntN(2) == 0 {
			interval = "50ms" // the interval of the later sync of records
		}
		d := p.start("--sweep-interval", interval)
		cut := p.disk.CutAfter(p.disk.Len() + 1 + p.random.IntN(2000)) // a list makes more than a hundred changes
		wait := l.submit(t, d)
		within(t, "the power is cut", cut)
		p.endAll()
		d.kill()
		wait()
		image := p.drawImage()
		p.remove()
		p.insert(image)
		d = p.start()
		l.check(t, p.dir)
		d.stop(t)
	}
	figures.add(t, "lists acknowledged and found again", len(l.accepted))
}
