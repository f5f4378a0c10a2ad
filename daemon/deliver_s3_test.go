package daemon

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobdir/jobdir/internal/s3test"
	"github.com/jobdir/jobdir/statefs"
)

// probing is the probe interval in tests, which cannot wait for the default.
const probing = 100 * time.Millisecond

// keys writes the credentials of a server into files and returns the keys of a job file that name
// them.
func keys(t *testing.T, s *s3test.Server) string {
	t.Helper()
	dir := t.TempDir()
	access, secret := filepath.Join(dir, "access"), filepath.Join(dir, "secret")
	must(t, os.WriteFile(access, []byte(s.AccessKey+"\n"), 0o600))
	must(t, os.WriteFile(secret, []byte(s.SecretKey+"\n"), 0o600))
	return `access_key_file: "` + access + `", secret_key_file: "` + secret + `"`
}

// bucketJob returns a job whose result is delivered to a bucket. more contains further keys of the
// target.
func bucketJob(t *testing.T, s *s3test.Server, more string) string {
	t.Helper()
	return deliverJob + `
  - s3: {endpoint: "` + s.URL() + `", bucket: videos, ` + keys(t, s) + more + `}
`
}

// probed starts a daemon with a short probe interval.
func probed(t *testing.T, jobs string) *bench {
	t.Helper()
	b := prepare(t, jobs, testHandlers)
	b.config.Outbox.Probe = probing
	b.config.Outbox.S3PartBytes = 5 << 20
	b.start()
	return b
}

// retryHeld retries a delivery that waits for a person.
func (b *bench) retryHeld(id statefs.ID) {
	b.t.Helper()
	held := filepath.Join(b.dir, "outbox", id.String()+".1-s3.failed_manual")
	b.poll("it waits for a person", func() bool { _, err := os.Stat(held); return err == nil })
	must(b.t, os.Rename(held, strings.TrimSuffix(held, "failed_manual")+"pending"))
	_, err := b.daemon.Sweep(b.t.Context(), false)
	must(b.t, err)
}

// inBucket returns an object of the bucket.
func inBucket(t *testing.T, s *s3test.Server, key string) *s3test.Object {
	t.Helper()
	o, err := s.Get(t.Context(), "videos", key)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return o
}

// onEachServer runs a test against every server that is installed.
func onEachServer(t *testing.T, do func(t *testing.T, s *s3test.Server)) {
	t.Parallel()
	for _, kind := range s3test.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			do(t, s3test.Begin(t, kind, "videos"))
		})
	}
}

func TestDeliverToBucket(t *testing.T) {
	onEachServer(t, func(t *testing.T, s *s3test.Server) {
		b := probed(t, bucketJob(t, s, `, key: "detection/${params.at}/${id}.json", metadata: {at: "${params.at}"}`))
		id := b.submit("made", `{"at": "there"}`)
		rec := b.delivered(id, statefs.DeliveryDelivered)
		key := "detection/there/" + id.String() + ".json"
		o := inBucket(t, s, key)
		if string(o.Body) != string(rec.Footer) || o.Type != "application/json" ||
			o.Metadata["jobdir-delivery"] != id.String()+".1" || o.Metadata["at"] != "there" {
			t.Errorf("it is %s, %+v", o.Body, o)
		}
		got := rec.Deliveries[0].Output
		if got.Bucket != "videos" || got.Object != key || got.ETag != o.ETag || got.Location != s.URL()+"/videos/"+key ||
			got.Bytes != int64(len(rec.Footer)) {
			t.Errorf("the record says %+v", got)
		}
		b.poll("the outbox is empty", func() bool { return len(b.outbox()) == 0 })
		if data, err := rec.Document(); err != nil || strings.Contains(string(data), s.SecretKey) {
			t.Errorf("the record has the secret: %v", err)
		}
	})
}

// The log is delivered in its sealed length, and the record as a JSON object.
func TestDeliverLogAndRecordToBucket(t *testing.T) {
	t.Parallel()
	s := s3test.Begin(t, s3test.Versity, "videos")
	b := probed(t,
		bucketJob(t, s,
			`, send: log`)+`  - s3: {endpoint: "`+s.URL()+`", bucket: videos, key: "${id}.record", send: record, `+keys(t,
			s)+"}\n")
	id := b.submit("made", `{}`)
	b.delivered(id, statefs.DeliveryDelivered, statefs.DeliveryDelivered)
	if o := inBucket(t, s, id.String()+".log"); string(o.Body) != "done\n" || o.Type != "text/plain; charset=utf-8" {
		t.Errorf("the log is %q, %s", o.Body, o.Type)
	}
	var rec statefs.Record
	if o := inBucket(t, s, id.String()+".record"); json.Unmarshal(o.Body, &rec) != nil ||
		rec.Status != statefs.Completed || o.Type != "application/json" {
		t.Errorf("the record is %q", o.Body)
	}
}

// While a server is down, deliveries fail and are retried; when it is up, all are delivered.
func TestDeliverWhenTheServerIsBack(t *testing.T) {
	t.Parallel()
	s := s3test.Prepare(t, s3test.Versity)
	b := probed(t, bucketJob(t, s, ""))
	var ids []statefs.ID
	for range 5 {
		ids = append(ids, b.submit("made", `{"at": "`+strings.Repeat("x", len(ids)+1)+`"}`))
	}
	b.poll("an entry says why", func() bool {
		for _, name := range b.outbox() {
			if data, err := os.ReadFile(filepath.Join(b.dir, "outbox", name)); err == nil &&
				strings.Contains(string(data), "nothing listens there") {
				return true
			}
		}
		return false
	})
	must(t, s.Start(t.Context()))
	must(t, s.MakeBucket(t.Context(), "other"))
	for _, id := range ids {
		rec := b.delivered(id, statefs.DeliveryManual)
		if !strings.Contains(rec.Deliveries[0].Error, "NoSuchBucket") || !strings.Contains(rec.Deliveries[0].Error,
			"make the bucket") {
			t.Errorf("the record says %q", rec.Deliveries[0].Error)
		}
	}
	must(t, s.MakeBucket(t.Context(), "videos"))
	for _, id := range ids {
		b.retryHeld(id)
		rec := b.delivered(id, statefs.DeliveryDelivered)
		if o := inBucket(t, s, id.String()+".json"); string(o.Body) != string(rec.Footer) {
			t.Errorf("%s is %s", id, o.Body)
		}
	}
}

// The uploaded parts of a dropped or refused delivery are removed from the server.
func TestDropForgetsParts(t *testing.T) {
	t.Parallel()
	s := s3test.Begin(t, s3test.Versity, "videos")
	front := s3test.NewInterceptor(t, s)
	var status atomic.Int64
	front.Answer(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("partNumber") == "2" {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(int(status.Load()))
			return
		}
		s3test.PassOn(w)
	})
	b := probed(t, `
group: test
name: talks
params: {n: {type: integer, required: true}}
run: [sh, -c, 'seq 1000000']
deliver:
  - s3: {endpoint: "`+front.URL+`", bucket: videos, send: log, `+keys(t, s)+`}
`)
	unfinished := func(want int) func() bool {
		return func() bool {
			n, err := s.Uploads(t.Context(), "videos")
			return err == nil && n == want
		}
	}
	status.Store(http.StatusServiceUnavailable)
	id := b.submit("talks", `{"n": 1}`)
	b.saysWhy(id, "503")
	b.poll("a part is there", unfinished(1))
	must(t, os.WriteFile(filepath.Join(b.dir, "outbox", id.String()+".1-s3.drop_requested"), nil, 0o600))
	b.delivered(id, statefs.DeliveryDropped)
	b.poll("no part is there", unfinished(0))
	status.Store(http.StatusRequestEntityTooLarge)
	id = b.submit("talks", `{"n": 2}`)
	b.delivered(id, statefs.DeliveryManual)
	if !unfinished(0)() {
		t.Error("parts of what was refused stay")
	}
	front.Answer(nil)
	b.retryHeld(id)
	b.delivered(id, statefs.DeliveryDelivered)
}
