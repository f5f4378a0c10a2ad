package daemon

import (
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// The lines of requests, as they are in logs.
const (
	linePause        = "  Pause requested, pausing..."
	lineResume       = "  Resume requested, resuming..."
	lineCancel       = "  Cancel requested, stopping..."
	lineCancelPaused = "  Cancel requested while paused, stopping..."
	lineRetry        = "  Retry requested, starting again..."
)

// Every request about a step that the table of actions lists can be carried out. Package decide has the others.
func TestEveryStepRequestHasAHandler(t *testing.T) {
	t.Parallel()
	for _, ask := range statefs.Actions() {
		if ask.Spec().OnStep && stepRequestHandlers[ask] == nil {
			t.Errorf("%s has no handler", ask)
		}
	}
}

// A request that this process makes, as its HTTP server does, takes effect without an event of its file.
func TestARequestOfThisProcessNeedsNoEvent(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	id := b.submit("wait", "{}")
	b.awaitState(id, statefs.Running)
	b.daemon.watchMu.Lock() // no event reaches the daemon
	defer b.daemon.watchMu.Unlock()
	must(t, b.tree.Request(t.Context(), id, statefs.Pause, nil))
	b.awaitState(id, statefs.Paused)
	must(t, b.tree.Request(t.Context(), id, statefs.Resume, nil))
	b.awaitState(id, statefs.Running)
}

// A submit of this process, as its HTTP server makes it, starts without an event of its marker: alone, and as a list.
func TestASubmitOfThisProcessNeedsNoEvent(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	b.awaitEnd(b.submit("count", "{}")) // the daemon is ready
	b.daemon.watchMu.Lock()             // no event reaches the daemon
	defer b.daemon.watchMu.Unlock()
	b.awaitEnd(b.submit("count", "{}"))
	var list []*statefs.Record
	def := b.catalog.Get("test", "count")
	params, err := def.BindJSON([]byte("{}"))
	must(t, err)
	for range 3 {
		s, err := submit.Build(def, params, submit.Options{}, time.Now())
		must(t, err)
		rec, err := b.tree.Draft(s)
		must(t, err)
		list = append(list, rec)
	}
	must(t, b.tree.Publish(list...))
	for _, rec := range list {
		b.awaitEnd(rec.ID)
	}
}
