package daemon

import (
	"net/http"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// A bulk retry tries the target once, revives entries that waited for a person, and never delivers
// an entry again. A request for a single entry is not delayed by it.
func TestBulkRetryTriesTheTargetOnce(t *testing.T) {
	t.Parallel()
	b, r := hooked(t, http.StatusForbidden)
	b.start()
	var names []statefs.EntryName
	for range 5 {
		id := b.submit("made", "{}")
		b.delivered(id, statefs.DeliveryManual)
		names = append(names, statefs.EntryName{ID: id, Place: 1, Kind: "webhook"})
	}
	b.poll("all wait for a person", func() bool { return b.daemon.ends.Deliveries.Status().FailedManual == 5 })
	r.answers(http.StatusServiceUnavailable)
	down := b.submit("made", "{}")
	b.poll("the target is down", func() bool {
		s := b.daemon.Deliveries.Status()
		return len(s.Targets) == 1 && s.Targets[0].Down
	})
	names = append(names, statefs.EntryName{ID: down, Place: 1, Kind: "webhook"})
	ask := func(ask statefs.DeliveryAction, names ...statefs.EntryName) map[statefs.EntryName]error {
		failed, err := b.daemon.Deliveries.Request(t.Context(), names, ask, statefs.Args{By: "anna"})
		must(t, err)
		return failed
	}
	// The target is down: a retry of all entries is one attempt.
	before := len(r.asked())
	if failed := ask(statefs.RetryDelivery, names...); len(failed) != 0 {
		t.Errorf("failed are %v", failed)
	}
	if n := b.daemon.Deliveries.Status(); n.Pending != 6 || n.FailedManual != 0 {
		t.Errorf("after a retry of all it is %+v", n)
	}
	done, stop := b.daemon.Deliveries.Await(names[2])
	defer stop()
	must(t, b.tree.Outbox.Request(names[2], statefs.RetryDelivery, statefs.Args{}))
	must(t, b.daemon.Deliveries.Reconcile(t.Context(), names[2]))
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the one that was named is not tried")
	}
	b.poll("no try is under way", func() bool {
		s := b.daemon.Deliveries.Status()
		return len(s.Targets) == 1 && s.Targets[0].Down && s.Targets[0].NextTryAt.After(time.Now())
	})
	if n := len(r.asked()) - before; n > 3 { // one for all, and one or two for the single request
		t.Errorf("the target was tried %d times", n)
	}
	if failed := ask(statefs.DropDelivery, names[0], names[1]); len(failed) != 0 {
		t.Errorf("failed are %v", failed)
	}
	b.delivered(names[0].ID, statefs.DeliveryDropped)
	r.answers(http.StatusOK)
	ask(statefs.RetryDelivery, names[2:]...)
	for _, name := range names[2:] {
		b.delivered(name.ID, statefs.DeliveryDelivered)
	}
	b.poll("nothing is left", func() bool { return len(b.outbox()) == 0 })
	if failed := ask(statefs.RetryDelivery, names[0]); failed[names[0]] == nil {
		t.Error("what was given up is tried again")
	}
}
