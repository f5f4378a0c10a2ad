package torture

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// TestKillLoop kills the daemon repeatedly under load, and compares its answers with the storage.
func TestKillLoop(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "storage"))
	l := &load{r: r, ledger: newLedger(), byTouch: true}
	cycles := prooftest.Count(5, 15, 300)
	survivals := 0
	for cycle := range cycles {
		d := r.start()
		if cycle == 0 {
			op, err := d.Submit(t.Context(), "t", "survivor", nil)
			must(t, err)
			must(t, l.ledger.submitted(op.ID, "survivor"))
			until(t, "the survivor runs", func() bool { return len(r.begun(t)) > 0 })
		}
		tree, err := statefs.Open(r.dir, statefs.Options{})
		must(t, err)
		l.settle(t, tree, d)
		l.endUnknown(t, tree, d)
		stop := l.run(d)
		r.pause(d, 150*time.Millisecond)
		d.kill()
		stop()
		for _, err := range []error{l.ledger.checkDead(r.dir), checkRecords(r.dir), r.checkEffects(tree)} {
			if err != nil {
				t.Fatalf("after a kill: %v\nthe daemon said: %s", err, d.stderr)
			}
		}
		alive, err := l.checkSurvivors(t, tree)
		if err != nil {
			t.Fatalf("after a kill: %v\nthe daemon said: %s", err, d.stderr)
		}
		survivals += alive
		must(t, tree.Close())
	}
	l.conclude(t)
	l.checkTicks(t)
	figures.add(t, "running commands that outlived a kill", survivals)
	figures.add(t, "kill -9 cycles", cycles)
	figures.add(t, "operations acknowledged and found again", len(l.ledger.ops))
	figures.add(t, "answers held against the storage", l.ledger.answers)
}

// conclude starts a last daemon, waits until all work has ended, and checks that nothing is left over.
func (l *load) conclude(t *testing.T) {
	t.Helper()
	r := l.r
	d := r.start("--sweep-interval", "1s")
	tree, err := statefs.Open(r.dir, statefs.Options{})
	must(t, err)
	l.settle(t, tree, d)
	l.finish(t, tree, d)
	must(t, r.checkEffects(tree))
	must(t, checkRecords(r.dir))
	until(t, "no process is left", func() bool { return len(r.commands()) == 0 })
	// A sweep removes a request whose operation ended first.
	until(t, "no request is left", func() bool {
		listing, err := tree.List()
		return err == nil && len(listing.IDs()) == 0
	})
	must(t, tree.Close())
	d.stop(t)
	wantEmpty(t, r.dir, "jobs", "tmp", "taken")
	kept, err := filepath.Glob(filepath.Join(r.dir, "corrupt", "*"))
	must(t, err)
	l.ledger.wantNoneOf(t, kept) // the files of an interrupted submit may be there
}
