package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// waitsWith waits until an attempt to deliver an entry has failed with this error.
func (b *bench) waitsWith(id statefs.ID, words string) {
	b.t.Helper()
	b.poll("the entry of "+id.String()+" says "+words, func() bool {
		entries, err := filepath.Glob(filepath.Join(b.dir, "outbox", id.String()+".1-*"))
		must(b.t, err)
		if len(entries) == 0 {
			return false
		}
		data, err := os.ReadFile(entries[0])
		return err == nil && strings.Contains(string(data), words)
	})
}

// Delivery to a full or read-only folder is retried until it succeeds, and leaves no partial file
// there.
func TestDeliverToAFolderThatIsFullOrReadOnly(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	mountTmpfs(t, out, "64k")
	b := prepare(t, deliverJob+`
  - folder: {path: "`+out+`"}
`, nil)
	b.config.Outbox.Probe = 20 * time.Millisecond
	b.start()
	ballast := filepath.Join(out, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk did not fill: %v", err)
	}
	full := b.submit("made", "{}")
	b.waitsWith(full, "no space left on device; make room there")
	must(t, os.Remove(ballast))
	b.delivered(full, statefs.DeliveryDelivered)

	must(t, unix.Mount("", out, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	closed := b.submit("made", "{}")
	b.waitsWith(closed, "read-only file system; mount it for writing")
	if left, err := os.ReadDir(out); err != nil || len(left) != 1 {
		t.Errorf("it has %v, %v", left, err)
	}
	must(t, unix.Mount("", out, "", unix.MS_REMOUNT, ""))
	b.delivered(closed, statefs.DeliveryDelivered)
}

// While the disk of the storage takes no entry the operation does not end; then both are written.
func TestDeliverWhileTheStorageIsFull(t *testing.T) {
	t.Parallel()
	dir, fill := smallDisk(t)
	out, done := t.TempDir(), make(chan struct{})
	handlers := work.Handlers{"ends": {Run: func(_ context.Context, _ *work.Op) error { <-done; return nil }}}
	b := prepareAt(t, dir, `
group: test
name: ends
handler: ends
deliver:
  - folder: {path: "`+out+`"}
`, handlers)
	b.start()
	id := b.submit("ends", "{}")
	b.awaitState(id, statefs.Running)
	free := fill()
	close(done)
	b.poll("the end is tried", func() bool { return len(b.daemon.Health().FailingOperations) > 0 })
	if rec, err := b.tree.ReadRecord(id); err != nil || rec.Status.Terminal() || len(b.outbox()) != 0 {
		t.Errorf("it is %s, the outbox has %v, %v", rec.Status, b.outbox(), err)
	}
	free()
	rec := b.delivered(id, statefs.DeliveryDelivered)
	if data, err := os.ReadFile(filepath.Join(out, id.String()+".json")); err != nil ||
		string(data) != string(rec.Footer) {
		t.Errorf("delivered is %q, %v", data, err)
	}
}

// When retry_for is over a person must act. A retry gets the full time limit again.
func TestRetryForRunsOut(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, http.StatusServiceUnavailable)
	b := prepare(t, deliverJob+`
  - webhook: {url: "`+r.URL+`/hook", retry_for: 1h}
`, nil)
	b.config.Outbox.WebhookAllow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	b.config.Outbox.Probe = 20 * time.Millisecond
	b.start()
	id := b.submit("made", "{}")
	b.failedOnce(id)
	b.delivered(id, statefs.DeliveryPending)
	b.jump.Store(int64(2 * time.Hour))
	if rec := b.delivered(id, statefs.DeliveryManual); !strings.Contains(rec.Deliveries[0].Error, "503") ||
		!strings.HasSuffix(rec.Deliveries[0].Error, "retry_for is over") {
		t.Errorf("the record says %+v", rec.Deliveries[0])
	}
	name := statefs.EntryName{ID: id, Place: 1, Kind: "webhook"}
	b.poll("it waits for a person", func() bool { _, manual, err := b.tree.Outbox.Has(name); return err == nil && manual })
	must(t, b.tree.Outbox.Request(name, statefs.RetryDelivery, statefs.Args{}))
	b.delivered(id, statefs.DeliveryPending)
	b.poll("it has as long again", func() bool {
		e, manual, err := b.tree.Outbox.Read(name)
		return err == nil && !manual && e.Until.Sub(b.now()) > 50*time.Minute
	})
	r.answers(http.StatusOK)
	b.delivered(id, statefs.DeliveryDelivered)
}

// A secret is read for each request, and appears in no stored file or log.
func TestSecretsOfWebhooks(t *testing.T) {
	t.Parallel()
	const first, second, broken = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"bmV3ZXIgc2VjcmV0IG9mIDI0IGJ5dGVzIG9yIG1vcmU=", "whsec_c2hvcnQ="
	const bearer = "Bearer b3BlbiBzZXNhbWU"
	var mu sync.Mutex
	signed := make(map[string]string) // webhook-id to the secret that signed it
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		mu.Lock()
		defer mu.Unlock()
		for _, secret := range []string{first, second} {
			key, err := base64.StdEncoding.DecodeString(secret)
			must(t, err)
			mac := hmac.New(sha256.New, key)
			_, _ = io.WriteString(mac, q.Header.Get("Webhook-Id")+"."+q.Header.Get("Webhook-Timestamp")+"."+string(body))
			if q.Header.Get("Authorization") == bearer &&
				q.Header.Get("Webhook-Signature") == "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
				signed[q.Header.Get("Webhook-Id")] = secret
			}
		}
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "secret")
	replace := func(text string) {
		must(t, os.WriteFile(file+".new", []byte(text+"\n"), 0o600))
		must(t, os.Rename(file+".new", file))
	}
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte(bearer+"\n"), 0o600))
	b := prepare(t, deliverJob+`
  - webhook: {url: "`+server.URL+`/hook", secret_file: "`+file+`", headers_file: {authorization: "`+token+`"}, send: record}
`, nil)
	b.config.Outbox.WebhookAllow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	b.config.Outbox.Probe = 20 * time.Millisecond
	logged := b.logInto()
	b.tellEvents()
	b.start()
	replace("whsec_" + first)
	one := b.submit("made", "{}")
	b.delivered(one, statefs.DeliveryDelivered)
	replace(broken)
	two := b.submit("made", "{}")
	b.waitsWith(two, "holds no secret")
	entry, err := os.ReadFile(b.entry(two, "pending"))
	must(t, err)
	replace("whsec_" + second)
	b.delivered(two, statefs.DeliveryDelivered)
	mu.Lock()
	defer mu.Unlock()
	if signed[one.String()+".1"] != first || signed[two.String()+".1"] != second {
		t.Errorf("signed is %v", signed)
	}
	kept := []string{string(entry)}
	for _, id := range []statefs.ID{one, two} {
		rec, err := b.tree.ReadRecord(id)
		must(t, err)
		data, err := rec.Document()
		must(t, err)
		kept = append(kept, string(data), b.log(id))
	}
	for _, secret := range []string{first, second, "c2hvcnQ=", bearer} {
		for _, text := range kept {
			if strings.Contains(text, secret) {
				t.Errorf("%q has a secret", text)
			}
		}
		if logged.with(secret) > 0 {
			t.Error("the log of the daemon has a secret")
		}
	}
}

// A daemon that is killed during a request makes the same request again.
func TestKilledWhileARequestIsUnderWay(t *testing.T) {
	t.Parallel()
	ids, hold := make(chan string, 2), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		ids <- q.Header.Get("Webhook-Id")
		_, _ = io.Copy(io.Discard, q.Body)
		select {
		case <-hold:
		case <-q.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	b := prepare(t, deliverJob+`
  - webhook: {url: "`+server.URL+`/hook"}
`, nil)
	b.config.Outbox.WebhookAllow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	child, _ := startChild(t, b.dir)
	id := b.submit("made", "{}")
	first := <-ids
	must(t, child.Process.Kill())
	_ = child.Wait() // it was killed
	close(hold)
	b.start()
	b.delivered(id, statefs.DeliveryDelivered)
	if second := <-ids; first != id.String()+".1" || second != first {
		t.Errorf("the first request was %q, the second %q", first, second)
	}
}

// The retention keeps all operations with undelivered entries, and none with dropped ones.
func TestRetentionKeepsWhatIsNotDelivered(t *testing.T) {
	t.Parallel()
	b, _ := hooked(t, http.StatusForbidden)
	b.config.Retention = history.Retention{Count: 1}
	b.start()
	var ids []statefs.ID
	for range 2 {
		id := b.submit("made", "{}")
		b.delivered(id, statefs.DeliveryManual)
		ids = append(ids, id)
	}
	b.poll("both wait for a person", func() bool { return b.daemon.ends.Deliveries.Status().FailedManual == 2 })
	if gone, err := b.daemon.Prune(t.Context(), false); err != nil || len(gone) != 0 {
		t.Errorf("pruned is %v, %v", gone, err)
	}
	must(t, b.tree.Outbox.Request(statefs.EntryName{ID: ids[0], Place: 1, Kind: "webhook"},
		statefs.DropDelivery, statefs.Args{}))
	b.poll("its entry is gone", func() bool { return len(b.outbox()) == 1 })
	_, err := b.daemon.Prune(t.Context(), false)
	must(t, err)
	b.poll("it is pruned", func() bool { _, err := b.tree.ReadRecord(ids[0]); return errors.Is(err, fs.ErrNotExist) })
	if _, err := b.tree.ReadRecord(ids[1]); err != nil {
		t.Errorf("the other one is gone: %v", err)
	}
}

// A late delivery uses the newest record, in which optional steps, which have runs of their own,
// have ended.
func TestTheNewestRecordIsDelivered(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	b := prepare(t, `
group: test
name: made
steps:
  - {name: main, run: [echo, main]}
  - {name: aside, needs: [main], optional: true, run: [sh, -c, "until test -e $JOBDIR_ARTIFACTS/go; do sleep 0.02; done"]}
deliver:
  - folder: {path: "`+out+`", send: record}
`, nil)
	b.config.Outbox.Probe = 24 * time.Hour
	b.start()
	id := b.submit("made", `{}`)
	b.waitsWith(id, "make the folder")
	b.artifact(id, "go")
	if rec := b.awaitEnd(id); rec.Trailing {
		t.Fatalf("it trails: %s", statuses(rec))
	}
	must(t, b.stop())
	b.start() // the start keeps the entry too
	b.waitsWith(id, `"attempts":2`)
	must(t, os.Mkdir(out, 0o750))
	must(t, b.tree.Outbox.Request(statefs.EntryName{ID: id, Place: 1, Kind: "folder"},
		statefs.RetryDelivery, statefs.Args{}))
	b.delivered(id, statefs.DeliveryDelivered)
	data, err := os.ReadFile(filepath.Join(out, id.String()+".json"))
	if err != nil || strings.Contains(string(data), `"trailing":true`) ||
		!strings.Contains(string(data), `"name":"aside","status":"succeeded"`) {
		t.Errorf("delivered is %s, %v", data, err)
	}
}
