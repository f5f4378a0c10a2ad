package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// An operation that only waits is evicted from memory, and is activated completely when something
// happens to it.
func TestWaitingOperationsAreEvicted(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	first := b.submit("one", `{}`)
	b.awaitState(first, statefs.Running)
	second, third, fourth := b.submit("one", `{}`), b.submit("one", `{}`), b.submit("one", `{}`)
	parked := func(id statefs.ID) {
		t.Helper()
		b.poll("it is parked", func() bool { op := b.daemon.operation(id); return op != nil && op.evicted.Load() })
	}
	for _, id := range []statefs.ID{second, third, fourth} {
		parked(id)
	}
	if b.daemon.operation(first).evicted.Load() {
		t.Error("what runs is parked")
	}
	must(t, b.daemon.Pin(t.Context(), second, true))
	parked(second)
	if rec, err := b.tree.ReadRecord(second); err != nil || !rec.Pinned {
		t.Errorf("pinned %v, %v", rec.Pinned, err)
	}
	// A damaged record is quarantined, as at a start, and the operation waits for a person.
	file := strings.TrimSuffix(b.tree.LogPath(third), ".log") + ".json"
	b.awaitFiles()
	must(t, os.WriteFile(file, []byte("{"), 0o600))
	b.touch(third, statefs.Pause)
	b.awaitState(third, statefs.FailedManual)
	b.touch(third, statefs.Cancel)
	b.awaitEnd(third)
	b.touch(first, statefs.Cancel)
	b.awaitState(second, statefs.Running) // and not the operation queued after it
	b.touch(second, statefs.Cancel)
	b.awaitState(fourth, statefs.Running)
	b.touch(fourth, statefs.Cancel)
	b.awaitEnd(fourth)
	b.poll("nothing is held", func() bool {
		for _, l := range b.daemon.admission.Lanes() {
			if l.Running > 0 || l.Waiting > 0 {
				return false
			}
		}
		return true
	})
}

// The event of a marker that the daemon knows does not make it read the record of an operation that waits. The event
// of each submit of this process is such an event.
func TestEventOfAKnownMarkerReadsNoRecord(t *testing.T) {
	t.Parallel()
	b := lanesBench(t)
	b.awaitState(b.submit("one", `{}`), statefs.Running)
	waits := b.submit("one", `{}`)
	b.poll("it is evicted", func() bool { op := b.daemon.operation(waits); return op != nil && op.evicted.Load() })
	must(t, os.WriteFile(b.tree.RecordPath(waits), []byte("{"), 0o600))
	op := b.daemon.operation(waits)
	before := op.events.Load()
	marker := filepath.Join(b.tree.JobsDir(), statefs.MarkerName(waits, statefs.Queued))
	must(t, os.Chtimes(marker, time.Time{}, time.Now()))
	b.poll("its event", func() bool { return op.events.Load() > before })
	b.daemon.watchMu.Lock()   // the event is enqueued
	b.daemon.watchMu.Unlock() //nolint:staticcheck // only waits
	b.daemon.reconcileQueue.wait()
	if b.daemon.operation(waits) != op || !op.evicted.Load() || b.daemon.stateOf(waits) != statefs.Queued {
		t.Error("the record was read")
	}
}
