package control

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

// withEvents gives a server an event log.
func withEvents(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	open := func(c *Config) {
		played, ok := c.Daemon.Live.(*daemonStatus)
		if !ok {
			t.Fatalf("a daemon of %T", c.Daemon.Live)
		}
		log, err := events.Open(played.owner, events.Options{Recent: 4})
		must(t, err)
		c.Events = log
		t.Cleanup(func() { must(t, log.Close()) })
	}
	return setup(t, append([]func(*Config){open}, change...)...)
}

// publishJobs publishes a transition of each job.
func (r *rig) publishJobs(jobs ...string) {
	for _, job := range jobs {
		r.config.Events.Publish(api.Event{
			Type: events.Transition, Group: "g", Job: job, Key: "a,b",
			Tags: []string{"t-" + job}, To: statefs.Running,
		})
	}
}

// sseEvents parses server-sent events.
type sseEvents struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Scanner
}

func (r *rig) follow(path string, headers ...string) *sseEvents {
	r.t.Helper()
	resp := r.open("GET", path, "", headers...)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		r.t.Fatalf("%s: %d %s", path, resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	return &sseEvents{r.t, resp, bufio.NewScanner(resp.Body)}
}

// next returns the fields of the next frame.
func (e *sseEvents) next() map[string]string {
	e.t.Helper()
	frame := map[string]string{}
	for e.in.Scan() {
		if e.in.Text() == "" {
			return frame
		}
		name, value, _ := strings.Cut(e.in.Text(), ":")
		frame[name] = strings.TrimPrefix(value, " ")
	}
	e.t.Fatalf("the stream ended: %v, after %v", e.in.Err(), frame)
	return nil
}

func (e *sseEvents) wantJobs(first int, jobs ...string) {
	e.t.Helper()
	for i, job := range jobs {
		f := e.next()
		var event api.Event
		if err := json.Unmarshal([]byte(f["data"]), &event); err != nil {
			e.t.Fatalf("frame %v: %v", f, err)
		}
		if event.Job != job || f["id"] != strconv.Itoa(first+i) || event.Seq != uint64(first+i) ||
			f["event"] != "transition" {
			e.t.Fatalf("frame %v, want %d of %s", f, first+i, job)
		}
	}
}

func TestEventsAreFollowedAndResumed(t *testing.T) {
	t.Parallel()
	r := withEvents(t)
	live := r.follow("/api/v1/events")
	if f := live.next(); f["id"] != "0" || f["data"] != "" {
		t.Fatalf("the first frame is %v, want the position alone", f)
	}
	r.publishJobs("a", "b", "c", "d", "e", "f", "g", "h")
	live.wantJobs(1, "a", "b", "c", "d", "e", "f", "g", "h")

	// as a reconnecting browser does; from before the oldest event in memory
	again := r.follow("/api/v1/events?after=0", "Last-Event-ID: 2")
	if f := again.next(); f["id"] != "2" {
		t.Fatalf("the first frame is %v", f)
	}
	again.wantJobs(3, "c", "d", "e", "f", "g", "h")

	for path, want := range map[string]int{
		"?after=0&job=c": 3, "?after=0&job=x,g/d": 4, "?after=0&tag=t-e&group=g": 5,
		"?after=5&key=a,b": 6, "?after=6&type=transition,lane&key=x&key=a%2Cb": 7,
	} {
		f := r.follow("/api/v1/events" + path)
		f.next()
		f.wantJobs(want, string(rune('a'+want-1)))
	}
	beyond := r.follow("/api/v1/events?type=lane", "Last-Event-ID: 99")
	beyond.next()
	if f := beyond.next(); f["event"] != "gap" ||
		!strings.Contains(f["data"], `"gap":{"from":9,"to":99,"reason":"unknown_number"}`) || f["id"] != "8" {
		t.Fatalf("got %v, want a gap", f)
	}
}

func TestEventsRefuse(t *testing.T) {
	t.Parallel()
	r := withEvents(t)
	for query, message := range map[string]string{
		"?colour=red":                 "Unknown parameter 'colour'; known here: job, group, lane, key, tag, id, type, after",
		"?id=me":                      "Invalid parameter 'id': ",
		"?type=joy":                   "Invalid parameter 'type': 'joy' is none of [transition step progress waiting stalled lane delivery target sweep gap]",
		"?after=-1":                   "Invalid parameter 'after': '-1' must be the number of an event, or 0",
		"?after=1&after=2":            "Parameter 'after' is given 2 times: give it once",
		"?after=99999999999999999999": "Invalid parameter 'after': '99999999999999999999' must be the number of an event, or 0",
	} {
		for _, path := range []string{"/api/v1/events", "/api/v1/ws"} {
			if a := r.get(path + query); a.status != 400 || !strings.Contains(a.body, message) {
				t.Errorf("%s%s: %d %s, want %s", path, query, a.status, a.body, message)
			}
		}
	}
	r.problem(r.get("/api/v1/events", "Last-Event-ID: x"), 400,
		"Invalid header Last-Event-ID: 'x' must be the number of an event, or 0")
	r.problem(r.get("/api/v1/ws"), 426,
		"This address speaks WebSocket alone; the same events come from /api/v1/events as server-sent events")
	r.problem(r.get("/api/v1/ws", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 8"), 400,
		`unsupported WebSocket protocol version (only 13 is supported): "8"`)
	if a := r.do("HEAD", "/api/v1/events", ""); a.status != 200 || a.body != "" {
		t.Errorf("HEAD: %d %q", a.status, a.body)
	}
	without := setup(t)
	without.problem(without.get("/api/v1/events"), 503, "This daemon keeps no events")
}

func TestEventsAreKeptAlive(t *testing.T) {
	t.Parallel()
	r := withEvents(t)
	r.server.events.heartbeat = time.Millisecond
	idle := r.follow("/api/v1/events?type=lane")
	r.publishJobs("a")
	for f := idle.next(); f["id"] != "1"; f = idle.next() {
		if f["data"] != "" {
			t.Fatalf("got %v", f)
		}
	}
}

func TestEventsEndWithTheServer(t *testing.T) {
	t.Parallel()
	r := withEvents(t)
	live := r.follow("/api/v1/events")
	live.next()
	socket := r.socket("")
	r.publishJobs("a")
	live.wantJobs(1, "a")
	r.wantMessages(socket, 1, "a")
	r.stop()
	if f := live.next(); f[""] != "shutting down" {
		t.Fatalf("the last frame is %v", f)
	}
	_, _, err := socket.Read(t.Context())
	if websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Fatalf("the WebSocket ended with %v", err)
	}
	r.await(r.done)
}

func (r *rig) socket(query string, headers ...string) *websocket.Conn {
	r.t.Helper()
	c, status, media, err := r.dial(query, headers...)
	if err != nil {
		r.t.Fatalf("%v, %d %s", err, status, media)
	}
	r.t.Cleanup(func() { _ = c.CloseNow() })
	return c
}

func (r *rig) dial(query string, headers ...string) (c *websocket.Conn, status int, media string, err error) {
	ctx, stop := context.WithTimeout(r.t.Context(), patience)
	defer stop()
	options := &websocket.DialOptions{HTTPHeader: http.Header{}}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			options.Host = value
			continue
		}
		options.HTTPHeader.Set(name, value)
	}
	c, resp, err := websocket.Dial(ctx, "ws://"+r.tcp.Addr().String()+"/api/v1/ws"+query, options)
	if resp == nil {
		return c, 0, "", err
	}
	if err != nil {
		must(r.t, resp.Body.Close())
	}
	return c, resp.StatusCode, resp.Header.Get("Content-Type"), err
}

func (r *rig) wantMessages(c *websocket.Conn, first int, jobs ...string) {
	r.t.Helper()
	ctx, stop := context.WithTimeout(r.t.Context(), patience)
	defer stop()
	for i, job := range jobs {
		kind, data, err := c.Read(ctx)
		must(r.t, err)
		var event api.Event
		must(r.t, json.Unmarshal(data, &event))
		if kind != websocket.MessageText || event.Job != job || event.Seq != uint64(first+i) {
			r.t.Fatalf("message %s, want %d of %s", data, first+i, job)
		}
	}
}

func TestEventsOverWebSocket(t *testing.T) {
	t.Parallel()
	r := withEvents(t)
	r.publishJobs("a", "b", "c", "d", "e", "f")
	r.follow("/api/v1/events?after=5").wait("6")
	all := r.socket("?after=0")
	r.wantMessages(all, 1, "a", "b", "c", "d", "e", "f")
	some := r.socket("?after=2&job=e", "Origin: http://"+r.tcp.Addr().String())
	r.wantMessages(some, 5, "e")
	r.publishJobs("g")
	r.wantMessages(all, 7, "g")

	r.server.events.heartbeat = time.Millisecond // for new connections
	pinged := r.socket("")
	r.publishJobs("h")
	r.wantMessages(pinged, 8, "h")

	// A client that sends anything is disconnected, and a client may leave: the server can stop after either.
	must(t, all.Write(t.Context(), websocket.MessageText, []byte("hello")))
	if _, _, err := all.Read(t.Context()); websocket.CloseStatus(err) != -1 &&
		websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		for err == nil {
			_, _, err = all.Read(t.Context())
		}
		if websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("after a message of the client: %v", err)
		}
	}
	must(t, some.CloseNow())
}

// wait reads until a frame has the id.
func (e *sseEvents) wait(id string) {
	e.t.Helper()
	for at := ""; at != id; {
		at = e.next()["id"]
	}
}

func TestAWebSocketIsGuarded(t *testing.T) {
	t.Parallel()
	r := withEvents(t, func(c *Config) { c.Tokens = []front.Token{{Name: "me", Secret: "0123456789abcdef"}} })
	token := "Authorization: Bearer 0123456789abcdef"
	r.socket("", token)
	for name, test := range map[string]struct {
		status  int
		headers []string
	}{
		"no token":             {401, nil},
		"wrong token":          {401, []string{"Authorization: Bearer 0123456789abcdeX"}},
		"page of another site": {403, []string{token, "Origin: https://evil.example"}},
		"page of another port": {403, []string{token, "Origin: http://127.0.0.1:1"}},
		"browser says so":      {403, []string{token, "Sec-Fetch-Site: cross-site"}},
		"page without origin":  {403, []string{token, "Origin: null"}},
		"rebound name":         {421, []string{token, "Host: evil.example"}},
	} {
		c, status, media, err := r.dial("", test.headers...)
		if err == nil {
			_ = c.CloseNow()
			t.Errorf("%s: let in", name)
			continue
		}
		if status != test.status || media != front.ProblemType {
			t.Errorf("%s: %d %s, want the problem %d", name, status, media, test.status)
		}
	}
}

// A slow reader blocks no publisher, and gets all events that are kept.
func TestSlowSubscriberBlocksNoOther(t *testing.T) {
	t.Parallel()
	r := withEvents(t)
	slow := r.follow("/api/v1/events")
	slow.next()
	other := r.follow("/api/v1/events")
	other.next()
	filler := strings.Repeat("x", 500)
	const count = 20_000 // more than the buffers of a connection hold
	for i := range count {
		r.config.Events.Publish(api.Event{Type: events.Transition, Job: fmt.Sprintf("%s%d", filler, i)})
	}
	other.wait(strconv.Itoa(count))
	for i := range count {
		if f := slow.next(); f["id"] != strconv.Itoa(i+1) {
			t.Fatalf("frame %d has id %s", i+1, f["id"])
		}
	}
}
