package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/internal/addrtest"
	"github.com/jobdir/jobdir/statefs"
)

// The tests of the daemon use a client with a real daemon; these are answers that a correct daemon never gives.

const id = "g-job_2025-11-26_13-07-00_p5_r4"

func parsed(t *testing.T) statefs.ID {
	t.Helper()
	out, err := statefs.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// answering returns a client of a server with this handler.
func answering(t *testing.T, handler http.HandlerFunc, options ...client.Option) *client.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		address string
		good    bool
	}{
		{"http://127.0.0.1:8484", true},
		{"http://127.0.0.1:8484/", true},
		{"https://example.org/prefix", true},
		{"unix:/run/jobdir.sock", true},
		{"unix:///run/jobdir.sock", true},
		{"unix:jobdir.sock", false},
		{"unix:", false},
		{"", false},
		{"127.0.0.1:8484", false},
		{"ftp://example.org", false},
		{"http://", false},
		{"http://user:secret@example.org", false},
		{"http://example.org/?a=b", false},
		{"http://[::1", false},
	}
	for _, test := range tests {
		t.Run(test.address, func(t *testing.T) {
			t.Parallel()
			if _, err := client.New(test.address); (err == nil) != test.good {
				t.Errorf("error %v, want one: %t", err, !test.good)
			}
		})
	}
}

func TestUnreachableDaemon(t *testing.T) {
	t.Parallel()
	address := "http://" + addrtest.For(t)
	long := filepath.Join(t.TempDir(), strings.Repeat("long/", 40), "no.sock")
	for _, address := range []string{address, "unix:" + filepath.Join(t.TempDir(), "no.sock"), "unix:" + long} {
		c, err := client.New(address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Health(t.Context()); !client.Unreachable(err) {
			t.Errorf("%s: error %v, want unreachable", address, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body, want string
		status           int
	}{
		{
			"a problem", `{"title":"Not Found","detail":"more","error":"Operation 'x' not found or already finished"}`,
			"Operation 'x' not found or already finished", 404,
		},
		{"a problem of another server", `{"title":"Teapot","detail":"short and stout"}`, "short and stout", 418},
		{"text", "go away\nfor good\n", "go away", 403},
		{"nothing", "", "the daemon answered 502 Bad Gateway", 502},
		{"no problem", `{"some":"thing"}`, "the daemon answered 500 Internal Server Error", 500},
		{"a redirect", "", "the daemon answered 302 Found", 302},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			})
			_, err := c.Operation(t.Context(), parsed(t))
			refused, ok := errors.AsType[*client.Error](err)
			if !ok || refused.Status != test.status || refused.Message != test.want {
				t.Errorf("error %#v, want %d %q", err, test.status, test.want)
			}
		})
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	const (
		head = "<start_json>\n{\"id\": \"" + id + "\", \"total\": null}\n</start_json>\n<log>\n"
		log  = "one\n<\\log> two\n"
		foot = "</log>\n<end_json>\n{\"result\": \"partial\", \"state\": \"completed\", \"processed\": 2, \"failed\": 1, \"error\": \"odd\"}\n</end_json>\n"
	)
	tests := []struct {
		name, body, log string
		offset, cut     int64 // cut is where to continue, -1 for a complete stream
	}{
		{"whole", head + log + foot, "one\n<log> two\n", 0, -1},
		{"from an offset", head + log + foot, "one\n<log> two\n", 100, -1},
		{"cut off in the log", head + log, "one\n<log> two\n", 0, 14},
		{"cut off in the log after an offset", head + log, "one\n<log> two\n", 100, 114},
		{"cut off in the header", head[:20], "", 7, 7},
		{"cut off in the footer", head + log + foot[:30], "one\n<log> two\n", 0, 14},
		{"empty", "", "", 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := answering(t, func(w http.ResponseWriter, r *http.Request) {
				if want := strconv.FormatInt(test.offset, 10); test.offset > 0 && r.FormValue("offset") != want {
					t.Errorf("offset %q, want %s", r.FormValue("offset"), want)
				}
				_, _ = io.WriteString(w, test.body)
			}, client.WithReconnectTimeout(0))
			var out bytes.Buffer
			footer, err := c.Follow(t.Context(), parsed(t), test.offset, &out)
			if out.String() != test.log {
				t.Errorf("log %q, want %q", out.String(), test.log)
			}
			cut, isCut := errors.AsType[*client.CutError](err)
			switch {
			case test.cut < 0 && err != nil:
				t.Fatal(err)
			case test.cut < 0:
				if footer.Result != statefs.Partial || footer.Processed != 2 || footer.Failed != 1 ||
					footer.Error.Message != "odd" {
					t.Errorf("footer %+v", footer)
				}
			case !isCut:
				t.Errorf("error %v, want a cut", err)
			case cut.Offset != test.cut:
				t.Errorf("cut at %d, want %d", cut.Offset, test.cut)
			}
		})
	}
}

func TestFollowSomethingElse(t *testing.T) {
	t.Parallel()
	c := answering(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") })
	_, err := c.Follow(t.Context(), parsed(t), 0, io.Discard)
	if _, cut := errors.AsType[*client.CutError](err); err == nil || cut {
		t.Errorf("error %v, want one that is no cut", err)
	}
}

// An error of the writer, and the end of the context, are returned as such: neither is a truncated stream.
func TestFollowEndsForItsReader(t *testing.T) {
	t.Parallel()
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "<start_json>\n{\"id\": \"x\"}\n</start_json>\n<log>\nline\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	gone := errors.New("the reader is gone")
	if _, err := c.Follow(t.Context(), parsed(t), 0, failing{gone}); !errors.Is(err, gone) {
		t.Errorf("error %v, want that of the writer", err)
	}
	left := errors.New("left")
	ctx, leave := context.WithCancelCause(t.Context())
	if _, err := c.Follow(ctx, parsed(t), 0, leaving{func() { leave(left) }}); !errors.Is(err, left) {
		t.Errorf("error %v, want the cause of the context", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

type leaving struct{ leave func() }

func (l leaving) Write(p []byte) (int, error) {
	l.leave()
	return len(p), nil
}

func TestSubmitTextSendsTypes(t *testing.T) {
	t.Parallel()
	const job = `{"group":"g","name":"j","params":[{"name":"n","type":"integer"},{"name":"f","type":"number"},{"name":"b","type":"boolean"},{"name":"s","type":"string"}]}`
	tests := []struct {
		name   string
		params map[string]string
		want   string // "" for a refusal without a request
	}{
		{
			"all types",
			map[string]string{"n": "5", "f": "1.5e3", "b": "1", "s": "5", "unknown": "7"},
			`{"b":true,"f":1.5e3,"n":5,"s":"5","unknown":"7"}`,
		},
		{"none", nil, `{}`},
		{"no integer", map[string]string{"n": "five"}, ""},
		{"a quoted integer", map[string]string{"n": `"5"`}, ""},
		{"nothing as integer", map[string]string{"n": ""}, ""},
		{"null", map[string]string{"n": "null"}, ""},
		{"no boolean", map[string]string{"b": "yes"}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			sent := ""
			c := answering(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					_, _ = io.WriteString(w, job)
					return
				}
				data, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				sent = string(data)
				_, _ = io.WriteString(w, `{"id":"`+id+`","state":"queued"}`)
			})
			op, err := c.SubmitText(t.Context(), "g", "j", test.params)
			if sent != test.want {
				t.Errorf("sent %s, want %s", sent, test.want)
			}
			_, wrong := errors.AsType[*client.TextError](err)
			if wrong != (test.want == "") {
				t.Errorf("error %v", err)
			}
			if err == nil && op.ID.String() != id {
				t.Errorf("ID %s", op.ID)
			}
		})
	}
}

func TestTokenAndPages(t *testing.T) {
	t.Parallel()
	const other = "g-job_2025-11-26_13-07-00_p5_r5"
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer secret" {
			t.Errorf("Authorization %q", got)
		}
		if r.FormValue("next") == "" {
			_, _ = io.WriteString(w, `{"operations":[{"id":"`+id+`","state":"running"}],"next":"`+id+`"}`)
			return
		}
		_, _ = io.WriteString(w, `{"operations":[{"id":"`+other+`","state":"paused"}],"next":null}`)
	}, client.WithToken("secret"))
	all, err := c.Operations(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[1].ID.String() != other || all[1].State != statefs.Paused {
		t.Errorf("operations %+v", all)
	}
}

func TestErrorHasRetryAfter(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{
		"": 0, "0": 0, "48": 48 * time.Second, "-1": 0, "1e3": 0, "99999999999": 0, "Wed, 21 Oct 2026 07:28:00 GMT": 0,
	} {
		c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", header)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		_, err := c.List(t.Context(), nil)
		if refused, ok := errors.AsType[*client.Error](err); !ok || refused.RetryAfter != want {
			t.Errorf("%q: error %#v, want %s", header, err, want)
		}
	}
}
