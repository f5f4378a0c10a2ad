package daemon

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/statefs"
)

// receiver is a webhook receiver with configurable answers.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	status   int
	requests []string // the webhook-id of each
}

func newReceiver(t *testing.T, status int) *receiver {
	t.Helper()
	r := &receiver{status: status}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests = append(r.requests, q.Header.Get("Webhook-Id"))
		w.WriteHeader(r.status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answers(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

func (r *receiver) asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.requests...)
}

// hooked is a bench whose job delivers to a receiver. Targets that are down are not probed
// automatically.
func hooked(t *testing.T, status int) (*bench, *receiver) {
	t.Helper()
	r := newReceiver(t, status)
	b := prepare(t, deliverJob+`
  - webhook: {url: "`+r.URL+`/hook"}
`, nil)
	b.config.Outbox.WebhookAllow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	b.config.Outbox.Probe = 24 * time.Hour
	return b, r
}

func (b *bench) entry(id statefs.ID, suffix string) string {
	return filepath.Join(b.dir, "outbox", id.String()+".1-webhook."+suffix)
}

// failedOnce waits until an entry has recorded a failed attempt.
func (b *bench) failedOnce(id statefs.ID) {
	b.t.Helper()
	b.poll("it was tried", func() bool {
		data, err := os.ReadFile(b.entry(id, "pending"))
		return err == nil && strings.Contains(string(data), `"attempts":1`)
	})
}

// A file with an invalid name is logged once, and left alone.
func TestOutboxOddFiles(t *testing.T) {
	t.Parallel()
	b, _ := hooked(t, http.StatusOK)
	logged := b.logInto()
	b.start()
	id := b.submit("made", "{}")
	b.delivered(id, statefs.DeliveryDelivered)
	odd := b.entry(id, "retry")
	must(t, os.WriteFile(odd, nil, 0o600))
	for range 3 {
		_, err := b.daemon.Sweep(t.Context(), false)
		must(t, err)
		b.poll("it is said", func() bool { return logged.with("unknown file in outbox", filepath.Base(odd)) > 0 })
	}
	if n := logged.with("unknown file in outbox"); n != 1 {
		t.Errorf("it is said %d times", n)
	}
	if _, err := os.Stat(odd); err != nil {
		t.Errorf("it is gone: %v", err)
	}
}

// Changes that a person makes in outbox/ take effect at once: no sweep runs in this test.
func TestOutboxByHand(t *testing.T) {
	t.Parallel()
	b, r := hooked(t, http.StatusForbidden)
	b.config.SweepInterval = time.Hour
	b.start()
	again, gone := b.submit("made", "{}"), b.submit("made", "{}")
	b.delivered(again, statefs.DeliveryManual)
	b.delivered(gone, statefs.DeliveryManual)
	b.poll("both wait for a person", func() bool { return b.daemon.ends.Deliveries.Status().FailedManual == 2 })
	r.answers(http.StatusOK)
	must(t, os.Rename(b.entry(again, "failed_manual"), b.entry(again, "pending")))
	if rec := b.delivered(again, statefs.DeliveryDelivered); rec.Deliveries[0].Error != "" {
		t.Errorf("the record says %+v", rec.Deliveries[0])
	}
	must(t, os.Remove(b.entry(gone, "failed_manual")))
	b.delivered(gone, statefs.DeliveryDropped)

	r.answers(http.StatusServiceUnavailable)
	gone, held := b.submit("made", "{}"), b.submit("made", "{}")
	b.poll("the target is down", func() bool {
		s := b.daemon.Deliveries.Status()
		return s.Pending == 2 && len(s.Targets) == 1 && s.Targets[0].Down
	})
	must(t, os.Remove(b.entry(gone, "pending")))
	b.delivered(gone, statefs.DeliveryDropped)
	must(t, os.Rename(b.entry(held, "pending"), b.entry(held, "failed_manual")))
	if rec := b.delivered(held, statefs.DeliveryManual); !strings.Contains(rec.Deliveries[0].Error, "set it aside") {
		t.Errorf("the record says %+v", rec.Deliveries[0])
	}
	r.answers(http.StatusOK)
	must(t, os.Rename(b.entry(held, "failed_manual"), b.entry(held, "pending")))
	b.delivered(held, statefs.DeliveryDelivered)
	b.poll("nothing is left", func() bool {
		s := b.daemon.Deliveries.Status()
		return s.Pending == 0 && s.FailedManual == 0 && len(b.outbox()) == 0
	})
}

// A request is carried out at once, even if the target is down, and the event names the requester.
func TestOutboxRequests(t *testing.T) {
	t.Parallel()
	b, r := hooked(t, http.StatusServiceUnavailable)
	b.tellEvents()
	b.start()
	reader := b.config.Events.Follow(events.Filter{Types: []events.Type{events.Delivery, events.TargetChanged}}, 0)
	defer reader.Close()
	first := b.submit("made", "{}")
	b.failedOnce(first)
	second := b.submit("made", "{}")
	b.delivered(second, statefs.DeliveryPending)
	nameOf := func(id statefs.ID) statefs.EntryName { return statefs.EntryName{ID: id, Place: 1, Kind: "webhook"} }
	r.answers(http.StatusForbidden)
	must(t, b.tree.Outbox.Request(nameOf(first), statefs.RetryDelivery, statefs.Args{By: "anna"}))
	b.delivered(first, statefs.DeliveryManual)
	b.delivered(second, statefs.DeliveryManual) // the target is up: it refuses this entry
	r.answers(http.StatusOK)
	must(t, b.tree.Outbox.Request(nameOf(first), statefs.RetryDelivery, statefs.Args{By: "anna"}))
	b.delivered(first, statefs.DeliveryDelivered)
	must(t, b.tree.Outbox.Request(nameOf(second), statefs.DropDelivery,
		statefs.Args{By: "bert", Reason: "nobody wants it"}))
	b.delivered(second, statefs.DeliveryDropped)
	host := "webhook " + r.URL
	b.toldOf(reader, host+" down: POST "+strings.TrimPrefix(r.URL,
		"http://")+" was answered with 503 (Service Unavailable)", "1 failed_manual", host+" up", "1 failed_manual",
		"1 pending by anna", "1 delivered", "1 dropped by bert")
	b.poll("nothing is left", func() bool { return len(b.outbox()) == 0 })
	if asked := r.asked(); len(asked) != 4 {
		t.Errorf("it was asked %v", asked)
	}
	counts := b.daemon.ends.Deliveries.Status().Kinds["webhook"]
	if counts.Delivered != 1 || counts.Failed != 1 || counts.Refused != 2 || counts.Dropped != 1 || counts.Bytes == 0 {
		t.Errorf("it counts %+v", counts)
	}
}

// An entry removed while no daemon runs is dropped; an entry lost with its folder is restored.
func TestOutboxWhileNoDaemonRuns(t *testing.T) {
	t.Parallel()
	b, r := hooked(t, http.StatusServiceUnavailable)
	b.start()
	gone, stays := b.submit("made", "{}"), b.submit("made", "{}")
	b.delivered(gone, statefs.DeliveryPending)
	b.delivered(stays, statefs.DeliveryPending)
	must(t, b.stop())
	must(t, os.Remove(b.entry(gone, "pending")))
	b.start()
	b.delivered(gone, statefs.DeliveryDropped)
	b.delivered(stays, statefs.DeliveryPending)
	must(t, b.stop())
	must(t, os.Rename(filepath.Join(b.dir, "outbox"), filepath.Join(t.TempDir(), "outbox")))
	must(t, os.Mkdir(filepath.Join(b.dir, "outbox"), 0o750))
	r.answers(http.StatusOK)
	b.start()
	b.delivered(stays, statefs.DeliveryDelivered)
	b.delivered(gone, statefs.DeliveryDropped)
}

// A fault on our side delays only the affected deliveries, and no others to the same receiver.
func TestOutboxOurFault(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, http.StatusOK)
	secret := filepath.Join(t.TempDir(), "secret")
	b := prepare(t, deliverJob+`
  - webhook: {url: "`+r.URL+`/hook", secret_file: `+secret+`}
  - webhook: {url: "`+r.URL+`/hook"}
`, nil)
	b.config.Outbox.WebhookAllow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	b.config.Outbox.Probe = 24 * time.Hour
	b.start()
	for range 2 {
		id := b.submit("made", "{}")
		b.delivered(id, statefs.DeliveryPending, statefs.DeliveryDelivered)
	}
	must(t, os.WriteFile(secret, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), 0o600))
	b.poll("two are left", func() bool { return b.daemon.ends.Deliveries.Status().Pending == 2 })
	page, total := b.daemon.Deliveries.Lines(&statefs.OutboxQuery{Target: "127.0.0.1", Limit: 10})
	if total != 2 || len(page) != 2 || page[0].Target == nil || !strings.Contains(page[0].Target.Error, "secret") {
		t.Fatalf("listed %+v, %d", page, total)
	}
	must(t, b.tree.Outbox.Request(page[1].Name, statefs.RetryDelivery, statefs.Args{}))
	b.delivered(page[0].Name.ID, statefs.DeliveryDelivered, statefs.DeliveryDelivered)
	b.delivered(page[1].Name.ID, statefs.DeliveryDelivered, statefs.DeliveryDelivered)
}
