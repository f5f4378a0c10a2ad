package client_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/internal/addrtest"
)

const (
	streamHead = "<start_json>\n{\"id\": \"" + id + "\", \"total\": null}\n</start_json>\n<log>\n"
	streamFoot = "</log>\n<end_json>\n{\"result\": \"success\", \"state\": \"completed\"}\n</end_json>\n"
	wholeLog   = "one\ntwo\nthree\n"
)

// cutting answers with the log in pieces of at most five bytes, one per connection; broken answers every second
// request.
func cutting(t *testing.T, broken func(w http.ResponseWriter)) http.HandlerFunc {
	calls := 0 // the client has one request at a time
	return func(w http.ResponseWriter, r *http.Request) {
		calls++
		if calls%2 == 0 {
			broken(w)
			return
		}
		from, err := strconv.Atoi("0" + r.FormValue("offset"))
		if err != nil {
			t.Error(err)
		}
		to := min(from+5, len(wholeLog))
		_, _ = io.WriteString(w, streamHead+wholeLog[from:to])
		if to == len(wholeLog) {
			_, _ = io.WriteString(w, streamFoot)
		}
	}
}

// However often the connection is lost, a follower writes the log exactly once.
func TestFollowGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	hangUp := func(w http.ResponseWriter) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			err = conn.Close()
		}
		if err != nil {
			t.Error(err)
		}
	}
	stopping := func(w http.ResponseWriter) { http.Error(w, "the daemon stops", http.StatusServiceUnavailable) }
	for name, broken := range map[string]func(http.ResponseWriter){"hangs up": hangUp, "stops": stopping} {
		for form, want := range map[string]string{"log": wholeLog, "raw": streamHead + wholeLog + streamFoot} {
			t.Run(name+" "+form, func(t *testing.T) {
				t.Parallel()
				var lost, back int
				c := answering(t, cutting(t, broken), client.WithReconnectNotice(func(error) { lost++ }, func() { back++ }))
				follow := c.Follow
				if form == "raw" {
					follow = c.FollowRaw
				}
				var out bytes.Buffer
				footer, err := follow(t.Context(), parsed(t), 0, &out)
				if err != nil {
					t.Fatal(err)
				}
				if out.String() != want || footer.Result != "success" {
					t.Errorf("got %q with %v, want %q", out.String(), footer.Result, want)
				}
				if lost != 2 || back != 2 {
					t.Errorf("told of %d losses and %d returns, want 2 of each", lost, back)
				}
			})
		}
	}
}

// Followers and waiting clients find a daemon again that returns at its address, as after a restart.
func TestRestartedDaemonIsFound(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", addrtest.For(t))
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	first := &httptest.Server{
		Listener: listener,
		Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.FormValue("format") == "stream" {
				_, _ = io.WriteString(w, streamHead+"one\n")
				_ = http.NewResponseController(w).Flush()
			}
			panic(http.ErrAbortHandler)
		})},
	}
	first.Start()
	restarted := make(chan *httptest.Server, 1)
	lost := func(error) {
		select {
		case old := <-restarted:
			restarted <- old
		default:
			first.Close()
			again, err := net.Listen("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			second := &httptest.Server{
				Listener: again,
				Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch {
					case r.FormValue("format") == "json":
						_, _ = io.WriteString(w, `{"result": "success"}`)
					case r.FormValue("offset") == "4":
						_, _ = io.WriteString(w, streamHead+wholeLog[4:]+streamFoot)
					default:
						t.Errorf("offset %q, want 4", r.FormValue("offset"))
					}
				})},
			}
			second.Start()
			t.Cleanup(second.Close)
			restarted <- second
		}
	}
	c, err := client.New("http://"+address, client.WithReconnectNotice(lost, nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var out bytes.Buffer
	footer, err := c.Follow(t.Context(), parsed(t), 0, &out)
	if err != nil || footer.Result != "success" || out.String() != wholeLog {
		t.Errorf("got %q, %v, want the whole log", out.String(), err)
	}
	if footer, err := c.Wait(t.Context(), parsed(t)); err != nil || footer.Result != "success" {
		t.Errorf("waited: %v", err)
	}
}

// A server that cuts off each stream at once is not retried for ever, and a server that never answered not at all.
func TestReconnectTimeoutEnds(t *testing.T) {
	t.Parallel()
	c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, streamHead)
	}, client.WithReconnectTimeout(50*time.Millisecond))
	_, err := c.Follow(t.Context(), parsed(t), 0, io.Discard)
	if _, cut := errors.AsType[*client.CutError](err); !cut {
		t.Errorf("error %v, want a cut", err)
	}
	refuses := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no such operation",
			http.StatusNotFound)
	})
	if _, err := refuses.Follow(t.Context(), parsed(t), 0, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "no such operation") {
		t.Errorf("error %v, want the refusal at once", err)
	}
}
