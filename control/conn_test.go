package control

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Requests that net/http refuses before a handler sees them are answered with a problem too, on a new connection and
// after a valid request.
func TestRefusalsOfTheServer(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const good = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for _, c := range []struct {
		name, text string
		want       int
		message    string
	}{
		{"a URL of 2 MB", "GET /testrouter/x?a=" + strings.Repeat("a", 2<<20) +
			" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414, "The URL is longer than 65536 bytes; POST takes parameters as a JSON body"},
		{"headers of 2 MB", "GET /readyz HTTP/1.1\r\nHost: localhost\r\nX-Large: " + strings.Repeat("a", 2<<20) +
			"\r\n\r\n", 431, "The headers are larger than 65536 bytes"},
		{"no host", "GET /readyz HTTP/1.1\r\n\r\n", 400, "The request cannot be read: missing required Host header"},
		{"two hosts", "GET /readyz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "Host is there twice"},
		{
			"an empty host", "GET /readyz HTTP/1.1\r\nHost:\r\n\r\n", 421,
			"The Host header is missing or empty: it must name this daemon, such as localhost",
		},
		{"a word", "hello\r\n\r\n", 400, "The request cannot be read: its first line or a header is malformed"},
		{
			"a header that is none", "GET /readyz HTTP/1.1\r\nHost: localhost\r\n: x\r\n\r\n", 400,
			"The request cannot be read",
		},
		{
			"another version", "GET /readyz HTTP/3.0\r\nHost: localhost\r\n\r\n", 505,
			"The request cannot be read: unsupported protocol version",
		},
		{
			"another encoding", "POST /media/decode HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: x\r\n\r\n", 501,
			"The only Transfer-Encoding",
		},
		{
			"another expectation", "POST /media/decode HTTP/1.1\r\nHost: localhost\r\nExpect: x\r\nContent-Length: 2\r\n\r\n{}",
			417, "The only Expect",
		},
	} {
		for name, l := range map[string]net.Listener{"tcp": r.tcp, "unix": r.unix} {
			if l == r.unix && c.want == 421 {
				continue // a host has no meaning there
			}
			for _, before := range []int{0, 1} {
				t.Run(c.name+" over "+name+[]string{"", ", second"}[before], func(t *testing.T) {
					t.Parallel()
					conn, err := net.Dial(l.Addr().Network(), l.Addr().String())
					must(t, err)
					defer conn.Close()
					must(t, conn.SetDeadline(time.Now().Add(patience)))
					in := bufio.NewReader(conn)
					send := func(text string) reply {
						_, err := io.WriteString(conn, text)
						must(t, err)
						resp, err := http.ReadResponse(in, nil)
						must(t, err)
						return reply{resp.StatusCode, resp.Header, readAll(t, resp)}
					}
					for range before {
						if a := send(good); a.status != 200 {
							t.Fatalf("the request before: %d", a.status)
						}
					}
					(&rig{t: t}).problem(send(c.text), c.want, c.message)
				})
			}
		}
	}
}

// Output of work is sent unchanged, also when it looks like a refusal.
func TestALogThatLooksLikeARefusal(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.submit().start()
	text := "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
		strings.Repeat("x\n", 4<<10)
	w.write(text)
	for range 3 {
		if a := r.get(w.path("/log")); a.status != 200 || a.body != text {
			t.Errorf("%d, %d bytes: %.60q", a.status, len(a.body), a.body)
		}
	}
}
