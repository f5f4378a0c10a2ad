package control

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// Closing the connection that started an operation applies on_disconnect of the job; closing any other does nothing.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		job  string
		want []statefs.Action
	}{
		{"cancelling", []statefs.Action{statefs.Cancel}},
		{"pausing", []statefs.Action{statefs.Pause}},
		{"streaming01", nil},
	} {
		for _, format := range formats {
			t.Run(c.job+" "+format, func(t *testing.T) {
				t.Parallel()
				r := setup(t)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url("/testrouter/"+c.job+"?format="+format), nil)
				must(t, err)
				left := make(chan struct{})
				go func() {
					defer close(left)
					if resp, err := http.DefaultClient.Do(req); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				}()
				var w *work
				r.until("the operation", func() bool {
					listing, err := r.tree.List()
					must(t, err)
					if len(listing.Markers) == 1 {
						w = r.take(listing.Markers[0].ID.String())
					}
					return w != nil
				})
				w.start()
				// Another reader of the same operation leaves first.
				other := r.open("GET", w.path("/stream"), "")
				other.Body.Close()
				r.until("the other reader to be gone", func() bool { return r.followers(w.id) == 1 })
				leave()
				r.await(left)
				r.until("the first reader to be gone", func() bool { return r.followers(w.id) == 0 })
				var sight statefs.Observation
				r.until("what it asks by that", func() bool {
					sight, err = r.tree.ObserveAll(w.id)
					must(t, err)
					return len(sight.Requests) >= len(c.want)
				})
				if len(sight.Requests) != len(c.want) || (len(c.want) > 0 && sight.Requests[0] != c.want[0]) {
					t.Errorf("asked %v, want %v", sight.Requests, c.want)
				}
			})
		}
	}
}

func (r *rig) followers(id statefs.ID) int {
	r.server.hub.mu.Lock()
	defer r.server.hub.mu.Unlock()
	return len(r.server.hub.followers[id])
}

func TestDrain(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit().start()
	r.server.Drain()
	for _, a := range []reply{
		r.get("/testrouter/streaming01?files=1"), r.do("POST", "/testrouter/streaming01", ""),
	} {
		r.problem(a, 503, "The daemon is stopping and starts nothing new")
		if a.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	if a := r.get("/readyz"); a.status != 503 || a.json(t)["draining"] != true {
		t.Errorf("readyz: %d %s", a.status, a.body)
	}
	if a := r.get("/testrouter/control?action=pause&id=" + w.id.String()); a.status != 200 {
		t.Errorf("a request while draining: %d", a.status)
	}
	r.problem(r.get("/testrouter/streaming01?files=x"), 400, "files") // invalid parameters are still reported
}

// Open streams end when the server stops: text without a footer, events with a comment, the footer format with a
// problem. on_disconnect is not applied.
func TestShutdown(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const streams = 200
	w := r.take(r.do("POST", "/testrouter/cancelling", "").header.Get(operationHeader)).start()
	w.write("one\n")
	starting := r.open("GET", "/testrouter/cancelling?format=stream", "")
	started := r.take(starting.Header.Get(operationHeader))
	var group, reading sync.WaitGroup
	reading.Add(streams)
	for i := range streams {
		format := []string{"stream", "sse"}[i%2]
		resp := r.open("GET", w.path("/stream?format="+format), "")
		group.Go(func() {
			defer resp.Body.Close()
			body := bufio.NewReader(resp.Body)
			var text string
			var err error
			for err == nil && !strings.HasSuffix(text, "one\n") { // a follower may not have received anything yet
				var line string
				line, err = body.ReadString('\n')
				text += line
			}
			reading.Done()
			data, last := io.ReadAll(body)
			text, err = text+string(data), cmp.Or(err, last)
			if err != nil || !strings.Contains(text, "one\n") || strings.Contains(text, "end_json") {
				t.Errorf("%s: %q %v", format, text, err)
			}
			if comment := strings.HasSuffix(text, ": shutting down\n\n"); comment != (format == "sse") {
				t.Errorf("%s ends with %q", format, text)
			}
		})
	}
	footers := make(chan reply, 1)
	go func() { footers <- r.get(w.path("/stream?format=json")) }()
	stuck := r.open("GET", w.path("/stream"), "")
	defer stuck.Body.Close()
	r.until("all readers", func() bool { return r.followers(w.id) == streams+2 })
	reading.Wait()
	r.stop()
	r.await(r.done)
	must(t, r.err)
	group.Wait()
	a := <-footers
	r.problem(a, 503, "The daemon is shutting down")
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if text := readAll(t, starting); !strings.HasSuffix(text, "<log>\n") {
		t.Errorf("the stream that started an operation ends with %q", text)
	}
	for _, id := range []statefs.ID{w.id, started.id} {
		if sight, err := r.tree.ObserveAll(id); err != nil || len(sight.Requests) != 0 || len(sight.States) != 1 {
			t.Errorf("after the stop %s has %+v %v", id, sight, err)
		}
	}
}

// A reader that reads nothing cannot keep the server from stopping.
func TestShutdownWithAStuckReader(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) { c.Limits.Stop = 50 * time.Millisecond })
	w := r.submit().start()
	resp := r.open("GET", w.path("/stream"), "")
	defer resp.Body.Close()
	piece := strings.Repeat("x", 1<<20) + "\n"
	for range 24 {
		w.write(piece)
	}
	r.stop()
	r.await(r.done)
	must(t, r.err)
}

func TestWaitForTheEffect(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit().start()
	await := func(action, wait string) <-chan reply {
		out := make(chan reply, 1)
		go func() { out <- r.do("POST", w.path("/"+action+"?wait="+wait), "") }()
		r.until("the request "+action, func() bool {
			sight, err := r.tree.ObserveAll(w.id)
			must(t, err)
			return slices.Contains(sight.Requests, statefs.Action(action))
		})
		return out
	}
	act := func(ask statefs.Action, from, to statefs.State) {
		taken, ok, err := r.owner.Requests.Take(w.id, ask)
		if err != nil || !ok {
			t.Fatalf("take: %v %v", ok, err)
		}
		if to != "" {
			must(t, r.owner.Move(w.id, from, to))
		}
		must(t, r.owner.Requests.Drop(taken))
	}
	check := func(a reply, status int, state string, effect bool) {
		t.Helper()
		out := a.json(t)
		if a.status != status || out["state"] != state || out["took_effect"] != effect || out["success"] != true {
			t.Errorf("%d %s, want %d %s", a.status, a.body, status, state)
		}
	}
	paused := await("pause", "30s")
	act(statefs.Pause, statefs.Running, statefs.Paused)
	w.settle(statefs.Paused, true)
	check(<-paused, 200, "paused", true)

	// The operation is paused already: no request is written, with and without a wait; strict makes it an error.
	already := "Operation '" + w.id.String() + "' is already paused"
	byGroup := "/testrouter/control?action=pause&id=" + w.id.String()
	for _, path := range []string{w.path("/pause?wait=30s"), w.path("/pause"), byGroup} {
		a := r.do("POST", path, "")
		check(a, 200, "paused", false)
		if out := a.json(t); out["message"] != already || out["changed"] != false {
			t.Errorf("%s: %v", path, out)
		}
	}
	for _, path := range []string{w.path("/pause?strict=true"), byGroup + "&strict=true"} {
		r.problem(r.do("POST", path, ""), 409, already)
	}
	if sight, err := r.tree.ObserveAll(w.id); err != nil || len(sight.Requests) > 0 {
		t.Errorf("requests that change nothing stand in jobs/: %v, %v", sight.Requests, err)
	}

	resumed := await("resume", "30")
	act(statefs.Resume, statefs.Paused, statefs.Running)
	w.settle(statefs.Running, true)
	check(<-resumed, 200, "running", true)

	over := <-await("pause", "10ms")
	check(over, 202, "running", false)
	if over.json(t)["pending"] != true {
		t.Errorf("the request stands: %s", over.body)
	}

	cancelled := await("cancel", "1m")
	act(statefs.Cancel, "", "")
	w.finish()
	w.settle(statefs.Completed, false)
	check(<-cancelled, 200, "completed", false) // it completed before the cancel
	r.problem(r.do("POST", w.path("/pause?wait=1s"), ""), 404, "not found or already finished")
	r.problem(r.do("POST", w.path("/pause?wait=soon"), ""), 400, "Invalid parameter 'wait'")
	r.problem(r.do("POST", w.path("/pause?wait=1000h"), ""), 400, "Invalid parameter 'wait'")
}

func TestDirectoryInPlaceOfRequestFile(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit().start()
	must(t, r.owner.Move(w.id, statefs.Running, statefs.Paused))
	file := statefs.RequestName(w.id, statefs.Resume)
	must(t, os.Mkdir(filepath.Join(r.tree.JobsDir(), file), 0o750))
	for _, path := range []string{w.path("/resume"), "/testrouter/control?action=resume&id=" + w.id.String()} {
		if out := r.problem(r.do("POST", path, ""), 409, "is no regular file"); out["file"] != "jobs/"+file {
			t.Errorf("%s: %v", path, out)
		}
	}
}

// An operation is found by its number alone, also if it ended recently.
func TestListByNumber(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ended, live := r.submit().start(), r.submit()
	ended.finish()
	for number, want := range map[uint64]string{
		ended.id.Sequence(): "completed",
		live.id.Sequence():  "queued", 12345: "",
	} {
		out := r.get(fmt.Sprintf("/api/v1/operations?number=%d", number)).json(t)
		state := ""
		if found := items(out["operations"]); len(found) > 0 {
			state = fmt.Sprint(found[0]["state"])
		}
		if state != want || (out["total"] == 1.0) != (want != "") {
			t.Errorf("r%d: %v, want %q", number, out, want)
		}
	}
}

func TestOperationShowsWhatIsTrueNow(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit().start()
	w.write("0123")
	alive := time.Now()
	must(t, r.owner.Output.WriteProgress(w.id, statefs.Progress{Done: 1, At: alive}))
	if out := r.get(w.path("")).json(t); out["last_heartbeat_at"] != alive.Format(time.RFC3339Nano) {
		t.Errorf("last_heartbeat_at is %v, the last sign of life was at %s", out["last_heartbeat_at"],
			alive.Format(time.RFC3339Nano))
	}
	must(t, r.tree.Request(t.Context(), w.id, statefs.Pause, nil))
	out := r.get(w.path("")).json(t)
	if out["state"] != "running" || out["status"] != "running" || out["log_bytes"] != float64(4) ||
		out["progress"] == nil || fmt.Sprint(out["requests"]) != "[pause]" {
		t.Errorf("live: %v", out)
	}
	for next, shown := range map[statefs.State]any{statefs.Running: nil, statefs.FailedRetryable: "failed_retryable"} {
		rec, err := r.tree.ReadRecord(w.id)
		must(t, err)
		rec.Next = next
		must(t, r.owner.WriteRecord(rec))
		if out := r.get(w.path("")).json(t); out["next"] != shown {
			t.Errorf("the record goes to %s, the marker is running: next is %v", next, out["next"])
		}
	}
	w.finish()
	out = r.get(w.path("")).json(t)
	if out["state"] != "completed" || out["result"] != "success" || out["log_bytes"] != float64(4) {
		t.Errorf("ended: %v", out)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for path, want := range map[string]bool{"": false, "?dry_run=true": true, "?dry_run": true, "?dry_run=0": false} {
		a := r.do("POST", "/api/v1/sweep"+path, "")
		if a.status != 200 || a.json(t)["dry_run"] != want || a.json(t)["findings"] == nil {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	r.problem(r.do("POST", "/api/v1/sweep?dry_run=maybe", ""), 400, "dry_run")
	r.problem(r.do("POST", "/api/v1/sweep", `{"dry_run": true}`), 400, "A body means nothing here")
}

// A panic ends its request only; an abort closes the connection without an answer.
func TestPanics(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) { c.Daemon.Condition = panicking{c.Daemon.Condition} })
	r.problem(r.get("/readyz"), 500, "The daemon could not do this")
	if !strings.Contains(r.logged.String(), "handler panicked") {
		t.Errorf("log: %s", r.logged)
	}
	if resp, err := http.Post(r.url("/api/v1/sweep"), "application/json", bytes.NewReader(nil)); err == nil {
		resp.Body.Close()
		t.Error("an aborted answer has arrived")
	}
	if a := r.get("/healthz"); a.status != 200 {
		t.Errorf("afterwards: %d", a.status)
	}
}

type panicking struct{ conditionStatus }

func (panicking) DiskFailed(error) {}

func (panicking) Health() api.Health { panic("health") }

func (panicking) Sweep(context.Context, bool) ([]statefs.Finding, error) { panic(http.ErrAbortHandler) }
