package torture

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/internal/faultfs"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// TestReadOnlyAndBack makes the disk read-only under load. The daemon ends with a message, and so does a
// daemon that is started then; after the disk is writable again, no acknowledged operation is lost.
func TestReadOnlyAndBack(t *testing.T) {
	t.Parallel()
	p := plug(t, faultfs.Empty())
	l := &load{r: p.rig, ledger: newLedger()}
	l.ledger.unwritten = true // the commands continue after the end of the daemon, and cannot write either
	rounds := prooftest.Count(1, 1, 5)
	for range rounds {
		d := p.start()
		tree, err := statefs.Open(p.dir, statefs.Options{})
		must(t, err)
		l.settle(t, tree, d)
		l.endUnknown(t, tree, d)
		must(t, tree.Close())
		stop := l.run(d)
		p.pause(d, 100*time.Millisecond)
		p.disk.ReadOnly(true)
		select {
		case <-d.ended:
		case <-time.After(patience):
			t.Fatalf("the daemon goes on: %s", d.stderr)
		}
		stop()
		says(t, d)
		d, err = p.tryStart()
		if !errors.Is(err, errEnded) {
			t.Fatalf("a daemon starts on a disk that it cannot write to: %v", err)
		}
		says(t, d)
		p.disk.ReadOnly(false)
		must(t, errors.Join(l.ledger.checkDead(p.dir), checkRecords(p.dir)))
	}
	l.conclude(t)
	figures.add(t, "times that the disk became read-only under load", rounds)
	figures.add(t, "operations acknowledged and found again", len(l.ledger.ops))
}

// says checks that a daemon that has ended has logged why.
func says(t *testing.T, d *daemon) {
	t.Helper()
	until(t, "the daemon says why it ended", func() bool {
		said := d.stderr.String()
		return strings.Contains(said, "jobdir: ") && strings.Contains(said, "read-only file system")
	})
	if d.err == nil || strings.Contains(d.stderr.String(), "panic") {
		t.Errorf("it ended with %v and said %s", d.err, d.stderr)
	}
}
