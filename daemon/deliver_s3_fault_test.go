package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/internal/s3test"
	"github.com/jobdir/jobdir/statefs"
)

// saysWhy waits until the last error in the entry of an operation contains a text.
func (b *bench) saysWhy(id statefs.ID, text string) {
	b.t.Helper()
	b.poll(fmt.Sprintf("the entry of %s says %q", id, text), func() bool {
		data, err := os.ReadFile(filepath.Join(b.dir, "outbox", id.String()+".1-s3.pending"))
		var entry statefs.OutboxEntry
		return err == nil && json.Unmarshal(data, &entry) == nil && strings.Contains(entry.LastError, text)
	})
}

// arrived waits until the bucket contains the result as it is in the record.
func (b *bench) arrived(s *s3test.Server, id statefs.ID) {
	b.t.Helper()
	rec := b.delivered(id, statefs.DeliveryDelivered)
	if o := inBucket(b.t, s, id.String()+".json"); string(o.Body) != string(rec.Footer) {
		b.t.Errorf("%s is %s", id, o.Body)
	}
}

// A delivery recovers from a transient fault without a person. Any other fault makes it wait for a
// person, and it is delivered when the person has repaired the cause.
func TestDeliverThroughFaults(t *testing.T) {
	onEachServer(t, func(t *testing.T, s *s3test.Server) {
		front := s3test.NewInterceptor(t, s)
		front.Refuse(http.StatusInternalServerError, "InternalError", nil)
		dir := t.TempDir()
		access, secret := filepath.Join(dir, "access"), filepath.Join(dir, "secret")
		must(t, os.WriteFile(access, []byte(s.AccessKey), 0o600))
		must(t, os.WriteFile(secret, []byte(s.SecretKey), 0o600))
		b := probed(t, deliverJob+`
  - s3: {endpoint: "`+front.URL+`", bucket: videos, access_key_file: "`+access+`", secret_key_file: "`+secret+`"}
`)
		n := 0
		submit := func() statefs.ID {
			n++
			return b.submit("made", fmt.Sprintf(`{"at": "%d"}`, n))
		}
		mends := func(text string, mend func()) {
			t.Helper()
			id := submit()
			b.saysWhy(id, text)
			mend()
			b.arrived(s, id)
		}
		waits := func(text string, mend func()) {
			t.Helper()
			id := submit()
			if rec := b.delivered(id, statefs.DeliveryManual); !strings.Contains(rec.Deliveries[0].Error, text) {
				t.Errorf("the record says %q, not %q", rec.Deliveries[0].Error, text)
			}
			mend()
			b.retryHeld(id)
			b.arrived(s, id)
		}
		start := func() {
			t.Helper()
			must(t, s.Start(t.Context()))
		}
		handOn := func() { front.Answer(nil) }
		mends("500 (Internal Server Error)", handOn)
		front.Refuse(http.StatusServiceUnavailable, "SlowDown", http.Header{"Retry-After": {"1"}})
		mends("SlowDown", handOn)
		front.Answer(skewedClock)
		mends("RequestTimeTooSkewed", handOn)
		// This comes before a restart, because minio then heals buckets for some time, also a
		// bucket that is being removed.
		must(t, s.RemoveBucket(t.Context(), "videos"))
		waits("NoSuchBucket", func() { must(t, s.MakeBucket(t.Context(), "videos")) })
		s.Kill()
		mends("502", start)
		must(t, os.Remove(secret))
		mends("no such file", func() { must(t, os.WriteFile(secret, []byte(s.SecretKey), 0o600)) })
		s.Kill()
		s.SecretKey = "another-secret"
		start()
		waits("SignatureDoesNotMatch", func() { must(t, os.WriteFile(secret, []byte(s.SecretKey+"\n"), 0o600)) })
		if s.Kind() != s3test.Versity {
			return // only this server can be read-only
		}
		s.Kill()
		s.ReadOnly = true
		start()
		waits("AccessDenied", func() {
			s.Kill()
			s.ReadOnly = false
			start()
		})
	})
}

// skewedClock makes the server see a request time of an hour ago.
func skewedClock(w http.ResponseWriter, r *http.Request) {
	old := time.Now().Add(-time.Hour).UTC()
	was := r.Header.Get("X-Amz-Date")
	r.Header.Set("X-Amz-Date", old.Format("20060102T150405Z"))
	r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), was[:8], old.Format("20060102"), 1))
	s3test.PassOn(w)
}

// A server that is killed in the middle of an upload gets the whole log in the end, once.
func TestDeliverLogToServerThatIsKilled(t *testing.T) {
	onEachServer(t, func(t *testing.T, s *s3test.Server) {
		line, err := s3test.NewLine(s.Addr(), false)
		must(t, err)
		defer line.Close()
		line.Slow(20 << 20)
		b := probed(t, `
group: test
name: talks
run: [sh, -c, 'seq 2000000']
deliver:
  - s3: {endpoint: "`+line.URL()+`", bucket: videos, send: log, `+keys(t, s)+`}
`)
		id := b.submit("talks", `{}`)
		b.poll("half of it has gone", func() bool { return line.Passed() > 8<<20 })
		s.Kill()
		b.delivered(id, statefs.DeliveryPending)
		b.poll("the entry says why", func() bool {
			data, err := os.ReadFile(filepath.Join(b.dir, "outbox", id.String()+".1-s3.pending"))
			return err == nil && strings.Contains(string(data), `"attempts":1`)
		})
		line.Slow(0)
		must(t, s.Start(t.Context()))
		rec := b.delivered(id, statefs.DeliveryDelivered)
		want, err := os.ReadFile(b.tree.LogPath(id))
		must(t, err)
		if o := inBucket(t, s, id.String()+".log"); !bytes.Equal(o.Body, want) ||
			rec.Deliveries[0].Output.Bytes != int64(len(want)) {
			t.Errorf("%d bytes are there of %d", len(o.Body), len(want))
		}
		if n, err := s.Uploads(t.Context(), "videos"); n != 0 || err != nil {
			t.Errorf("%d uploads are unfinished, %v", n, err)
		}
	})
}

// A thousand results (in short mode a hundred) reach a server that is killed again and again: each
// is in the bucket, only under its own name.
func TestDeliverToServerThatIsKilled(t *testing.T) {
	t.Parallel()
	s := s3test.Begin(t, s3test.Versity, "videos")
	b := probed(t, `
group: test
name: count
handler: count
unique: {on_hit: off}
deliver:
  - s3: {endpoint: "`+s.URL()+`", bucket: videos, key: "detection/${id}.json", on: ended, `+keys(t, s)+`}
`)
	kills := 0
	kill := func() {
		s.Kill()
		kills++
		must(t, s.Start(t.Context()))
	}
	var ids []statefs.ID
	results := prooftest.Count(100, 1000, 1000)
	for i := range results {
		ids = append(ids, b.submit("count", `{}`))
		if every := results / 10; i%every == every-1 { // while other uploads are in progress
			kill()
		}
	}
	named := make(map[string]statefs.ID)
	for some := range slices.Chunk(ids, results/10) {
		kill()
		b.awaitAll("are delivered", some, func(id statefs.ID) bool {
			rec, err := b.tree.ReadRecord(id)
			return err == nil && len(rec.Deliveries) == 1 && rec.Deliveries[0].State == statefs.DeliveryDelivered
		})
		for _, id := range some {
			named["detection/"+id.String()+".json"] = id
		}
	}
	b.poll("the outbox is empty", func() bool {
		return !slices.ContainsFunc(b.outbox(), func(name string) bool { return strings.Contains(name, "-s3.") })
	})
	names, err := s.Keys(t.Context(), "videos")
	must(t, err)
	if len(names) != len(named) {
		t.Errorf("after %d kills the bucket has %d objects for %d results", kills, len(names), len(named))
	}
	for _, name := range names {
		rec, err := b.tree.ReadRecord(named[name])
		must(t, err)
		if o := inBucket(t, s, name); string(o.Body) != string(rec.Footer) || o.ETag != rec.Deliveries[0].Output.ETag {
			t.Errorf("%s is %s, the record says %+v", name, o.Body, rec.Deliveries[0].Output)
		}
	}
	t.Logf("%d kills", kills)
}
