package daemon

import (
	"net/http"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// A requested delivery is tried at once each time, whatever was requested and failed before, and
// Await reports each attempt.
func TestRequestedDeliveryIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	b, r := hooked(t, http.StatusServiceUnavailable)
	b.start()
	var names []statefs.EntryName
	for range 8 {
		id := b.submit("made", "{}")
		b.delivered(id, statefs.DeliveryPending)
		names = append(names, statefs.EntryName{ID: id, Place: 1, Kind: "webhook"})
	}
	attempts := func(name statefs.EntryName) int {
		entry, _, err := b.tree.Outbox.Read(name)
		must(t, err)
		return entry.Attempts
	}
	ask := func(name statefs.EntryName) {
		must(t, b.tree.Outbox.Request(name, statefs.RetryDelivery, statefs.Args{}))
		must(t, b.daemon.Deliveries.Reconcile(t.Context(), name))
	}
	await := func(name statefs.EntryName) {
		done, stop := b.daemon.Deliveries.Await(name)
		defer stop()
		ask(name)
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatalf("%s was not tried", name)
		}
	}
	for _, name := range names {
		for _, other := range names {
			ask(other)
		}
		before := attempts(name)
		await(name)
		if after := attempts(name); after <= before {
			t.Errorf("it was tried %d times, then %d", before, after)
		}
	}
	r.answers(http.StatusForbidden)
	await(names[0])
	b.delivered(names[0].ID, statefs.DeliveryManual)
	r.answers(http.StatusOK)
	await(names[0])
	b.delivered(names[0].ID, statefs.DeliveryDelivered)
	done, stop := b.daemon.Deliveries.Await(names[1])
	must(t, b.tree.Outbox.Request(names[1], statefs.DropDelivery, statefs.Args{}))
	must(t, b.daemon.Deliveries.Reconcile(t.Context(), names[1]))
	select {
	case <-done: // delivered or dropped
	case <-time.After(patience):
		t.Error("nobody is told of an entry that is gone")
	}
	stop()
}
