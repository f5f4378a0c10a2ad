package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/statefs/api"
)

// untilDisconnected publishes events until the server has disconnected the slow client.
func (r *rig) untilDisconnected() {
	r.t.Helper()
	filler := strings.Repeat("x", 500)
	n := 0
	r.until("the reader to be let go", func() bool {
		for range 1000 {
			r.config.Events.Publish(api.Event{Type: events.Transition, Job: fmt.Sprintf("%s%d", filler, n)})
			n++
		}
		return strings.Contains(r.logged.String(), "disconnecting slow event subscriber")
	})
}

// isCut checks that the received events are complete up to the final gap, and returns the number after which to
// continue. The gap is empty if the client has received every event.
func (r *rig) isCut(got []api.Event) uint64 {
	r.t.Helper()
	if len(got) < 2 {
		r.t.Fatalf("%d events came", len(got))
	}
	told := uint64(len(got) - 1)
	for i, e := range got[:told] {
		if e.Type != events.Transition || e.Seq != uint64(i+1) {
			r.t.Fatalf("event %d is number %d, %s", i+1, e.Seq, e.Type)
		}
	}
	last := got[told]
	if last.Type != events.Missing || last.Seq != told || last.Gap.From != told+1 || last.Gap.To+1 < last.Gap.From ||
		last.Gap.Reason != events.GapSlow {
		r.t.Fatalf("the last event is %+v, gap %+v, want a gap from %d, reason slow", last, last.Gap, told+1)
	}
	return told
}

// A client that stops reading is disconnected, and finds the reason after all earlier events; after a reconnect it has
// lost nothing.
func TestStalledEventSubscriberIsDisconnected(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		t.Run("server-sent over "+network, func(t *testing.T) {
			t.Parallel()
			r := withEvents(t, func(c *Config) { c.Limits.WriteStall = 50 * time.Millisecond })
			conn := r.dialTo(network)
			defer conn.Close()
			must(t, conn.SetDeadline(time.Now().Add(patience)))
			_, err := io.WriteString(conn, "GET /api/v1/events?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
			must(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(t, err)
			r.untilDisconnected()
			body, err := io.ReadAll(resp.Body)
			must(t, err) // a complete response
			must(t, resp.Body.Close())
			var got []api.Event
			for line := range bytes.Lines(body) {
				if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
					var e api.Event
					must(t, json.Unmarshal(data, &e))
					got = append(got, e)
				}
			}
			told := r.isCut(got)
			if want := fmt.Sprintf("\nid: %d\n\n", told); !bytes.HasSuffix(body, []byte(want)) {
				t.Errorf("the last frame ends with %q, want the id %d", body[len(body)-40:], told)
			}
			again := r.follow("/api/v1/events", "Last-Event-ID: "+strconv.FormatUint(told, 10))
			again.next()
			if f := again.next(); f["id"] != strconv.FormatUint(told+1, 10) || f["event"] != "transition" {
				t.Errorf("who comes back gets number %s, a %s, want %d", f["id"], f["event"], told+1)
			}
		})
		t.Run("WebSocket over "+network, func(t *testing.T) {
			t.Parallel()
			r := withEvents(t, func(c *Config) { c.Limits.WriteStall = 50 * time.Millisecond })
			ctx, stop := context.WithTimeout(t.Context(), patience)
			defer stop()
			transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn,
				error,
			) {
				return r.dialTo(network), nil
			}}
			//nolint:bodyclose // a handshake that succeeded has no body
			socket, _, err := websocket.Dial(ctx, "ws://localhost/api/v1/ws?after=0",
				&websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
			must(t, err)
			defer func() { _ = socket.CloseNow() }()
			r.untilDisconnected()
			var got []api.Event
			for {
				_, data, err := socket.Read(ctx)
				if err != nil {
					if websocket.CloseStatus(err) != websocket.StatusTryAgainLater {
						t.Errorf("the WebSocket ended with %v", err)
					}
					break
				}
				var e api.Event
				must(t, json.Unmarshal(data, &e))
				got = append(got, e)
			}
			r.isCut(got)
		})
	}
}

func (r *rig) dialTo(network string) net.Conn {
	r.t.Helper()
	l := r.tcp
	if network == "unix" {
		l = r.unix
	}
	conn, err := net.Dial(network, l.Addr().String())
	must(r.t, err)
	return conn
}

// A WebSocket client that answers no ping is disconnected with a reason too.
func TestWebSocketWithoutPongGetsSlowGap(t *testing.T) {
	t.Parallel()
	r := withEvents(t)
	r.server.events.heartbeat = time.Millisecond
	// a ping that cannot be written within the timeout closes the connection without a close frame
	r.server.events.pong = 200 * time.Millisecond
	conn := r.dialTo("tcp")
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	_,
		err := io.WriteString(conn,
		"GET /api/v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	must(t, err)
	all, err := io.ReadAll(conn)
	must(t, err)
	if text := string(all); !strings.Contains(text, `"type":"gap"`) ||
		!strings.Contains(text, `"gap":{"from":1,"to":0,"reason":"slow"}`) ||
		!strings.HasSuffix(text, "the events were not read") {
		t.Errorf("got %q", text)
	}
}
