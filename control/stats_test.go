package control

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/counts"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
)

// fakeDaemon returns the daemon that a test simulates.
func (r *rig) fakeDaemon() *daemonStatus {
	r.t.Helper()
	d, ok := r.config.Daemon.Live.(*daemonStatus)
	if !ok {
		r.t.Fatalf("a daemon of %T", r.config.Daemon.Live)
	}
	return d
}

// setState adds an operation to the simulated daemon.
func (d *daemonStatus) setState(id statefs.ID, state statefs.State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	live := history.Live{ID: id, State: state}
	if rec, err := d.owner.ReadRecord(id); err == nil {
		row := history.RowOf(rec)
		row.Status = state
		live.Row = row.Pack()
	}
	d.live = append(d.live, live)
	d.counters.Move(counts.Place{}, counts.Place{State: state})
}

func (r *rig) wantCount(query, want string) {
	r.t.Helper()
	a := r.get("/api/v1/operations?limit=0&" + query)
	if got := a.header.Get("X-Total-Count"); got != want || a.status != 200 ||
		a.header.Get("X-Total-Count-Exact") != "true" || fmt.Sprint(a.json(r.t)["total"]) != want {
		r.t.Errorf("%s: %d %s %s, want %s", query, a.status, got, a.body, want)
	}
}

func TestCountsEachOperationOnce(t *testing.T) {
	t.Parallel()
	r := setup(t)
	submit := func() statefs.ID {
		id, err := statefs.ParseID(fmt.Sprint(r.do("POST", "/testrouter/streaming01?key=k", "").json(t)["id"]))
		must(t, err)
		return id
	}
	r.wantCount("status=queued", "0")
	first := submit()
	r.wantCount("status=queued", "1") // not yet seen by the daemon
	r.wantCount("status=scheduled,failed_manual", "0")
	r.fakeDaemon().setState(first, statefs.Queued)
	r.wantCount("status=queued", "1")
	seen, err := r.owner.ReadRecord(first)
	must(t, err)
	r.config.Intake.Track(seen)
	r.wantCount("status=queued", "1")
	r.wantCount("status=queued,queued,scheduled", "1")

	second := r.do("POST", "/testrouter/streaming01", `{"files": 3}`).json(t)["id"]
	r.wantCount("status=queued", "2")
	must(t, r.owner.RemoveName(fmt.Sprintf("%s.queued", second))) // it ended before the request to the daemon
	r.wantCount("status=queued", "1")

	// Filtered counts, and foreign operations, are read from the markers.
	r.wantCount("status=queued&group=media", "0")
	r.wantCount("status=running", "0")
}

func TestStats(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit().start().finish()
	r.submit()
	r.submit().start()
	d := r.fakeDaemon()
	now := time.Now()
	d.counters.Move(counts.Place{}, counts.Place{Lane: "cookie", State: statefs.Queued, Since: now.Add(time.Minute)})
	d.counters.Move(counts.Place{}, counts.Place{Lane: "cookie", State: statefs.Running})
	d.counters.AddWait("cookie", 1500*time.Millisecond, now)
	d.counters.AddRun("cookie", 2*time.Second, now)
	out := r.get("/api/v1/stats").json(t)
	if got := fmt.Sprint(out["states"]); got != "map[cancelled:0 completed:1 failed:0 queued:1 running:1]" {
		t.Errorf("states %s", got)
	}
	lanes, ok := out["lanes"].([]any)
	if !ok || len(lanes) != 1 {
		t.Fatalf("%v", out)
	}
	want := "map[ages:[map[below_seconds:1 count:1]] capacity:<nil> lane:cookie oldest_wait_seconds:0 paused:0 processing:map[count:1 max_seconds:2 p50_seconds:1.999 p90_seconds:1.999 p99_seconds:1.999] " +
		"queued:1 running:1 states:map[queued:1 running:1] waiting:map[count:1 max_seconds:1.5 p50_seconds:1.475 p90_seconds:1.475 p99_seconds:1.475]]"
	if got := fmt.Sprint(lanes[0]); got != want {
		t.Errorf("lane\n%s, want\n%s", got, want)
	}
	if all, ok := out["all"].(map[string]any); !ok || all["queued"] != 1.0 {
		t.Errorf("all: %v", out["all"])
	}
}

// Server time of the count that a producer requests before each submit, with 100,000 queued operations.
func BenchmarkCountQueued(b *testing.B) {
	d := &daemonStatus{ready: true, known: make(chan struct{})}
	close(d.known)
	for range 100_000 {
		d.counters.Move(counts.Place{}, counts.Place{State: statefs.Queued})
	}
	tree, err := statefs.Open(b.TempDir(), statefs.Options{Durability: statefs.Process})
	if err != nil {
		b.Fatal(err)
	}
	defer tree.Close()
	s, err := New(Config{Tree: tree, Daemon: d.parts()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/api/v1/operations?status=queued&limit=0", nil)
		w := httptest.NewRecorder()
		s.front.ServeHTTP(w, r)
		if w.Header().Get("X-Total-Count") != "100000" {
			b.Fatalf("%d %v", w.Code, w.Header())
		}
	}
}
