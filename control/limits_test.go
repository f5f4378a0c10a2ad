package control

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/control/front"
)

func TestSizes(t *testing.T) {
	r := setup(t)
	large := `{"title":"` + strings.Repeat("a", front.MaxBody) + `"}`
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		want                     int
		message                  string
	}{
		{
			"a URL that is just short enough", "GET", "/testrouter/x?" + strings.Repeat("a", front.MaxURL-len("/testrouter/x?")), "",
			nil, 404, "There is no job",
		},
		{
			"a URL that is too long", "GET", "/testrouter/x?" + strings.Repeat("a", front.MaxURL), "", nil, 414,
			"The URL is longer than 65536 bytes",
		},
		{
			"a URL that is much too long", "GET", "/testrouter/x?" + strings.Repeat("a", 10*front.MaxURL), "", nil, 414,
			"The URL is longer",
		},
		{
			"headers that are too large", "GET", "/readyz", "",
			[]string{"X-Large: " + strings.Repeat("a", front.MaxHeaders)},
			431,
			"The headers are larger than 65536 bytes",
		},
		{
			"a body that says it is too large", "POST", "/media/decode", large, nil, 413,
			"The body has 1048588 bytes, the limit is 1048576",
		},
		{"a GET with a body", "GET", "/testrouter/streaming01?files=1", "{}", nil, 400, "A GET has no body here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			(&rig{t: t}).problem(r.do(c.method, c.path, c.body, c.headers...), c.want, c.message)
		})
	}
	t.Run("a body that is too large and does not say so", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url("/media/decode"),
			io.MultiReader(strings.NewReader(large)))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		(&rig{t: t}).problem(reply{resp.StatusCode, resp.Header, readAll(t, resp)}, 413, "The body is larger")
	})
	t.Run("a head that nobody reads to its end", func(t *testing.T) {
		status, _ := (&rig{t: t}).raw(r.tcp, "GET", "/readyz", "Host: localhost",
			"X-Large: "+strings.Repeat("a", front.MaxRequest-500))
		if status != 431 {
			t.Errorf("got %d", status)
		}
	})
	if a := r.get("/readyz"); a.status != 200 {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
}

// A client that sends a byte now and then gets an explanation, and its connection is closed.
func TestByteByByte(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) { c.Limits = front.Limits{Header: 150 * time.Millisecond, Body: 150 * time.Millisecond} })
	for _, c := range []struct {
		name, quick, slow, message string
	}{
		{
			"the request line", "", "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"The headers of the request took too long",
		},
		{
			"a header", "GET /readyz HTTP/1.1\r\nHost: localhost\r\n", "X-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
			"The headers of the request took too long",
		},
		{
			"a body",
			"POST /media/decode HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n",
			strings.Repeat(" ", 90), "The request took too long",
		},
		{
			"a second request", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"GET /readyz HTTP/1.1\r\n", "The headers of the request took too long",
		},
	} {
		for name, l := range map[string]net.Listener{"tcp": r.tcp, "unix": r.unix} {
			t.Run(c.name+" over "+name, func(t *testing.T) {
				t.Parallel()
				conn, err := net.Dial(l.Addr().Network(), l.Addr().String())
				must(t, err)
				defer conn.Close()
				must(t, conn.SetDeadline(time.Now().Add(patience)))
				_, err = io.WriteString(conn, c.quick+c.slow[:1])
				must(t, err)
				stopped := make(chan struct{})
				answered := make(chan struct{})
				go func() {
					defer close(stopped)
					tick := time.NewTicker(100 * time.Millisecond)
					defer tick.Stop()
					for i := 1; i < len(c.slow)-1; i++ {
						select {
						case <-tick.C:
							if _, err := conn.Write([]byte(c.slow[i : i+1])); err != nil {
								return
							}
						case <-answered:
							return
						}
					}
				}()
				data, err := io.ReadAll(conn)
				close(answered)
				<-stopped
				text := string(data)
				if i := strings.LastIndex(text, "HTTP/1.1 "); i > 0 {
					text = text[i:] // the answer to the first request
				}
				for _, has := range []string{
					"HTTP/1.1 408 Request Timeout\r\n", "Content-Type: " + front.ProblemType,
					`"error":"` + c.message, "Connection: close",
				} {
					if !strings.Contains(text, has) {
						t.Errorf("%q lacks %q (%v)", data, has, err)
					}
				}
			})
		}
	}
}

// A stream lives longer than every timeout of a request.
func TestTimeoutsDoNotCutStreams(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) {
		c.Limits = front.Limits{Header: 20 * time.Millisecond, Body: 20 * time.Millisecond, Idle: 20 * time.Millisecond}
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url("/testrouter/streaming01?files=1"), nil)
	must(t, err)
	var resp *http.Response
	r.until("a request in time", func() bool { // on a busy machine it comes too late for its timeout
		if resp, err = http.DefaultClient.Do(req); err != nil { //nolint:bodyclose // readAll closes it
			return false
		}
		if resp.StatusCode != http.StatusOK {
			must(t, resp.Body.Close())
		}
		return resp.StatusCode == http.StatusOK
	})
	w := r.take(resp.Header.Get(operationHeader)).start()
	timer := time.NewTimer(200 * time.Millisecond) // longer than the server's timeouts
	defer timer.Stop()
	<-timer.C
	w.write("still here\n")
	w.finish()
	if text := readAll(t, resp); !strings.Contains(text, "still here\n</log>\n<end_json>") {
		t.Errorf("stream: %q", text)
	}
}

// An idle connection without any request is closed without an answer.
func TestIdleConnection(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) { c.Limits = front.Limits{Header: 50 * time.Millisecond} })
	if text := r.exchange(r.tcp, ""); text != "" {
		t.Errorf("got %q", text)
	}
}
