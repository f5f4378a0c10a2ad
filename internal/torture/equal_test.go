package torture

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// equalJobs are submitted by many clients at once, the second with an idempotency key, so that it is one
// operation even after its end.
const equalJobs = `
group: equal
name: live
params: {n: {type: integer, required: true}}
run: [sleep, "1000"]
---
group: equal
name: keyed
params: {n: {type: integer, required: true}}
unique: {on_hit: off}
run: ["true"]
`

// TestEqualSubmitsAreOneOperation makes two hundred equal submits at once, half of them by file, and kills
// the daemon during that: all get the same operation, including repetitions after the restart.
func TestEqualSubmitsAreOneOperation(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	must(t, os.WriteFile(filepath.Join(r.jobs, "equal.yaml"), []byte(equalJobs), 0o600))
	cycles := prooftest.Count(2, 8, 100)
	kills := 0
	for n := range cycles {
		d := r.start("--sweep-interval", "1s")
		work := []*equal{newEqual(t, r, "live", n), newEqual(t, r, "keyed", n)}
		var asking sync.WaitGroup
		for _, w := range work {
			asking.Go(func() { w.drop(50) })
			asking.Go(func() { w.ask(d, 50) })
		}
		if n%4 != 0 {
			r.pause(d, 80*time.Millisecond)
			d.kill()
			kills++
		}
		asking.Wait()
		if n%4 != 0 {
			d = r.start("--sweep-interval", "1s")
		}
		for _, w := range work {
			w.ask(d, w.unanswered)
			if w.unanswered > 0 {
				t.Fatalf("%d submits of %s failed: %v; the daemon said: %s", w.unanswered, w.job, w.failed, d.stderr)
			}
			w.readAnswers(50)
			w.check(d)
		}
		_, err := d.Request(t.Context(), work[0].only(), statefs.Cancel, patience)
		must(t, err)
		d.stop(t)
	}
	figures.add(t, "times that 100 equal submits came to one operation", 2*cycles)
	figures.add(t, "kill -9 meanwhile", kills)
}

// equal is one piece of work that many clients submit.
type equal struct {
	t   *testing.T
	r   *rig
	job string
	n   int

	mu         sync.Mutex // guards the following fields
	ids        map[statefs.ID]int
	created    int
	unanswered int
	failed     error // the last error without an answer
}

func newEqual(t *testing.T, r *rig, job string, n int) *equal {
	t.Helper()
	return &equal{t: t, r: r, job: job, n: n, ids: make(map[statefs.ID]int)}
}

func (e *equal) submission() client.Submission {
	s := client.Submission{Job: "equal/" + e.job, Params: map[string]int{"n": e.n}}
	if e.job == "keyed" {
		s.IdempotencyKey = fmt.Sprint("key ", e.n)
	}
	return s
}

// ask makes submits over HTTP, all at once.
func (e *equal) ask(d *daemon, count int) {
	e.mu.Lock()
	e.unanswered = 0
	e.mu.Unlock()
	var all sync.WaitGroup
	for range count {
		all.Go(func() {
			got, err := d.SubmitOne(e.t.Context(), e.submission())
			e.mu.Lock()
			defer e.mu.Unlock()
			if err != nil {
				e.unanswered, e.failed = e.unanswered+1, err
				return
			}
			e.ids[got.ID]++
			if got.Created {
				e.created++
			}
		})
	}
	all.Wait()
}

func (e *equal) file(i int) string {
	return filepath.Join(e.r.dir, "new", fmt.Sprintf("%s-%d-%d", e.job, e.n, i))
}

// drop makes submits by file.
func (e *equal) drop(count int) {
	data, err := json.Marshal(e.submission())
	if err != nil {
		e.t.Error(err)
		return
	}
	for i := range count {
		part := e.file(i) + ".part"
		if err := os.WriteFile(part, data, 0o600); err != nil {
			e.t.Error(err)
		}
		if err := os.Rename(part, e.file(i)+".json"); err != nil {
			e.t.Error(err)
		}
	}
}

// readAnswers waits until every file is answered.
func (e *equal) readAnswers(count int) {
	e.t.Helper()
	for i := range count {
		var text []byte
		until(e.t, "an answer to "+e.file(i), func() bool {
			if why, err := os.ReadFile(e.file(i) + ".rejected"); err == nil {
				e.t.Fatalf("rejected: %s", why)
			}
			var err error
			text, err = os.ReadFile(e.file(i) + ".accepted")
			return err == nil
		})
		id, err := statefs.ParseID(strings.TrimSpace(string(text)))
		must(e.t, err)
		e.ids[id]++
	}
}

func (e *equal) only() statefs.ID {
	for id := range e.ids {
		return id
	}
	return statefs.ID{}
}

// check compares the answers with each other and with the storage.
func (e *equal) check(d *daemon) {
	e.t.Helper()
	if len(e.ids) != 1 || e.created > 1 {
		e.t.Fatalf("equal submits of %s came to %v, %d times as a new one; the daemon said: %s", e.job, e.ids,
			e.created, d.stderr)
	}
	if e.ids[e.only()] != 100 {
		e.t.Errorf("%d answers of 100", e.ids[e.only()])
	}
	files, err := filepath.Glob(filepath.Join(e.r.dir, "operations", "*", "equal-"+e.job+"_*.json"))
	must(e.t, err)
	tree, err := statefs.Open(e.r.dir, statefs.Options{})
	must(e.t, err)
	defer func() { must(e.t, tree.Close()) }()
	for _, file := range files {
		id, err := statefs.ParseID(strings.TrimSuffix(filepath.Base(file), ".json"))
		must(e.t, err)
		rec, err := tree.ReadRecord(id)
		must(e.t, err)
		if string(rec.Params) != fmt.Sprintf(`{"n":%d}`, e.n) || id == e.only() {
			continue
		}
		// Its submit was interrupted between record and marker: it has not started and has no end.
		if _, err := tree.State(id); !errors.Is(err, statefs.ErrNotLive) || rec.Status.Terminal() || rec.Starts > 0 {
			e.t.Errorf("%s does the same as %s: %s, started %d times; the daemon said: %s", id, e.only(), rec.Status,
				rec.Starts, d.stderr)
		}
	}
}
