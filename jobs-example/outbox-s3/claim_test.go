package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Predictions that are empty count as none; they are taken when they are there.
func TestEmptyPredictionsWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	empty := map[string]any{"array": bson.A{}, "document": bson.D{}, "text": "", "null": nil}
	for id, prediction := range empty {
		w.insert(w.outbox, waits(id))
		w.insert(w.source, entryOf(id, bson.E{Key: "prediction", Value: prediction}))
	}
	p := work(t, w.env(), "--every=50ms")
	for id := range empty {
		p.says(fmt.Sprintf("Skipped %q: it has no prediction yet", id))
		if m := w.marked(id); m.Status != "pending" || m.Output.Object != "" {
			t.Errorf("the outbox of %s says %+v", id, m)
		}
	}
	if names := w.names("videos"); len(names) > 0 {
		t.Errorf("empty predictions are stored: %q", names)
	}
	for id := range empty {
		w.set(w.source, id, with(id))
		p.says("Stored videos/detection/" + id + ".json")
		w.check(id, "videos", "detection/"+id+".json")
	}
	p.stops()
}

// claims are what the workers have claimed.
func (w *world) claims() *mongo.Collection { return w.outbox.Database().Collection("outbox_claims") }

// puts counts what is stored by way of it, by the path.
type puts struct {
	mu sync.Mutex
	of map[string]int
}

// counting starts a way to the S3 server that counts.
func counting(t *testing.T, to string) (*puts, string) {
	t.Helper()
	p := &puts{of: map[string]int{}}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: to})
		r.Out.Host = r.In.Host // the signature has it
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			p.mu.Lock()
			p.of[r.URL.Path]++
			p.mu.Unlock()
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return p, strings.TrimPrefix(server.URL, "http://")
}

// Four workers at one source store each entry once.
func TestNothingIsStoredTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	count, addr := counting(t, w.s3.addr)
	const entries = 40
	for i := range entries {
		w.insert(w.source, entryOf(i, with(i)))
		w.insert(w.outbox, waits(i))
	}
	var workers []*process
	for range 4 {
		workers = append(workers, work(t, append(w.env(), "MINIO_ENDPOINT="+addr), "--mode=once", "--every=50ms"))
	}
	stored := 0
	for _, p := range workers {
		p.exits(0)
		stored += p.count("Stored ")
	}
	count.mu.Lock()
	defer count.mu.Unlock()
	for path, n := range count.of {
		if n != 1 {
			t.Errorf("%s was stored %d times", path, n)
		}
	}
	if len(count.of) != entries || stored != entries {
		t.Errorf("%d objects were stored, and %d are said to be, want %d", len(count.of), stored, entries)
	}
	for i := range entries {
		w.check(i, "videos", fmt.Sprintf("detection/%d.json", i))
	}
	if n, err := w.claims().CountDocuments(t.Context(), bson.D{}); n != 0 || err != nil {
		t.Errorf("%d claims are left, %v", n, err)
	}
}

// A claim of a worker that is gone is taken over when it is over, and by the next run of the same operation at once.
func TestClaimsOfTheDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for id, until := range map[string]time.Time{
		"own": time.Now().Add(time.Hour), "over": time.Now().Add(-time.Second),
		"held": time.Now().Add(time.Hour),
	} {
		w.insert(w.source, entryOf(id, with(id)))
		w.insert(w.outbox, waits(id))
		w.insert(w.claims(), bson.D{{Key: "_id", Value: id}, {Key: "by", Value: id}, {Key: "until", Value: until}})
	}
	p := work(t, append(w.env(), "JOBDIR_ID=own"), "--every=50ms")
	p.says("Stored videos/detection/own.json")
	p.says("Stored videos/detection/over.json")
	w.check("own", "videos", "detection/own.json")
	w.check("over", "videos", "detection/over.json")
	if m := w.marked("held"); m.Status != "pending" || p.count("held") > 0 {
		t.Errorf("the claim of another worker: %+v", m)
	}
	p.stops()
}

// Two workers are killed repeatedly and restart each time: with JOBDIR_TORTURE set every ten seconds for five
// minutes, with the real times of the job; otherwise a few times, with shorter times. Entries that arrive
// during that are stored.
func TestKilledWorkersGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	jobs, kills, lives := t.TempDir(), 7, 700*time.Millisecond
	text, err := os.ReadFile("store.yaml")
	if err != nil {
		t.Fatal(err)
	}
	definition := string(text)
	if os.Getenv("JOBDIR_TORTURE") != "" {
		kills, lives = 30, 8*time.Second // beside a second of back-off, and one until the number is written
	} else {
		for was, is := range map[string]string{"within: 5s": "within: 500ms", "initial: 1s": "initial: 50ms"} {
			if !strings.Contains(definition, was) {
				t.Fatalf("store.yaml has no %q", was)
			}
			definition = strings.Replace(definition, was, is, 1)
		}
	}
	if err := os.WriteFile(filepath.Join(jobs, "store.yaml"), []byte(definition), 0o600); err != nil {
		t.Fatal(err)
	}
	d := newDaemonOn(t, jobs, w.env())
	var paths []string
	for _, number := range []string{"1", "2"} {
		op := d.operation(d.ask("POST", "/detection/store", `{"worker": `+number+`}`, 201))
		paths = append(paths, "/api/v1/operations/"+op.ID)
	}
	for n := range kills {
		id := fmt.Sprintf("event-%d", n)
		w.insert(w.outbox, waits(id))
		w.insert(w.source, entryOf(id, with(id)))
		for _, path := range paths {
			if err := until(func() error { // its number is written when it has run for a second
				op := d.operation(d.ask("GET", path, "", 200))
				name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", op.PID))
				if op.State != "running" || op.Run != n+1 || string(name) != "outbox-s3\n" {
					return fmt.Errorf("kill %d: %+v, which is %q", n, op, name)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		rest(t.Context(), lives)
		for _, path := range paths {
			op := d.operation(d.ask("GET", path, "", 200))
			if err := syscall.Kill(op.PID, syscall.SIGKILL); err != nil {
				t.Fatalf("kill %d: %v", op.PID, err)
			}
		}
	}
	for n := range kills {
		id := fmt.Sprintf("event-%d", n)
		if err := until(func() error {
			if m := w.marked(id); m.Status != "predicted" {
				return fmt.Errorf("%s is %s", id, m.Status)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		w.check(id, "videos", "detection/"+id+".json")
	}
	for _, path := range paths {
		d.ask("POST", path+"/cancel?wait=60s", "", 200)
		if op := d.operation(d.ask("GET", path, "", 200)); op.State != "cancelled" || op.Run < kills {
			t.Errorf("%+v", op)
		}
	}
}
