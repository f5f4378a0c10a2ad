package control

import (
	"net/http"
	"testing"
)

// startingDaemon simulates a restart of the daemon: no live operation is loaded until the returned function is called.
func (r *rig) startingDaemon() (knowsAll func()) {
	known := make(chan struct{})
	d := r.fakeDaemon()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known, d.listing = known, true
	return func() { close(known) }
}

// A daemon that has not loaded every live operation gives no number, and never too low a number.
func TestCountsAreRefusedDuringStartup(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit()
	r.submit()
	knowsAll := r.startingDaemon()
	for _, path := range []string{
		"/api/v1/operations?status=queued&limit=0", "/api/v1/operations?status=queued&lane=default&limit=0",
		"/api/v1/operations?limit=0",
		"/api/v1/operations?status=running&limit=0", "/api/v1/stats", "/api/v1/lanes", "/api/v1/lanes/cookie",
		"/api/v1/lanes/all",
	} {
		a := r.get(path)
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" ||
			a.header.Get("X-Total-Count") != "" {
			t.Errorf("%s: %d, Retry-After %q, %s", path, a.status, a.header.Get("Retry-After"), a.body)
		}
	}
	if a := r.do("POST", "/api/v1/bulk",
		`{"action": "cancel", "filter": {"status": "queued"}}`); a.status != http.StatusServiceUnavailable {
		t.Errorf("bulk: %d %s", a.status, a.body)
	}
	if a := r.get("/api/v1/operations?status=queued"); a.status != http.StatusOK || a.header.Get("X-Total-Count") != "2" ||
		a.header.Get("X-Total-Count-Exact") != "false" {
		t.Errorf("a list: %d, %v, %s", a.status, a.header, a.body)
	}
	knowsAll()
	r.wantCount("status=queued", "2")
	if a := r.get("/api/v1/stats"); a.status != http.StatusOK {
		t.Errorf("stats: %d %s", a.status, a.body)
	}
}

// A hold of a lane applies at once, also while the daemon starts; its state is answered after the start.
func TestLanePauseTakesEffectDuringStartup(t *testing.T) {
	t.Parallel()
	r := setup(t)
	knowsAll := r.startingDaemon()
	answered := make(chan int, 1)
	go func() { answered <- r.do("POST", "/api/v1/lanes/cookie/pause", "").status }()
	r.until("the lane is paused", func() bool {
		_, err := r.laneFile("cookie.paused")
		return err == nil
	})
	select {
	case status := <-answered:
		t.Errorf("it is answered with %d before the daemon knows what lives", status)
	default:
	}
	knowsAll()
	if status := <-answered; status != http.StatusOK {
		t.Errorf("it is answered with %d", status)
	}
}
