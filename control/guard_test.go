package control

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/statefs"
)

const (
	aliceSecret = "0123456789abcdef0123456789abcdef"
	bobSecret   = "fedcba9876543210fedcba9876543210"
)

// raw sends a request verbatim and returns its status line and body.
func (r *rig) raw(l net.Listener, method, target string, headers ...string) (status int, body string) {
	r.t.Helper()
	text := method + " " + target + " HTTP/1.1\r\n" + strings.Join(headers, "\r\n") + "\r\nConnection: close\r\n\r\n"
	answer := r.exchange(l, text)
	if _, err := fmt.Sscanf(answer, "HTTP/1.1 %d", &status); err != nil {
		r.t.Fatalf("%s %.200s: answer %q", method, target, answer)
	}
	_, body, _ = strings.Cut(answer, "\r\n\r\n")
	return status, body
}

// Requests that must not get through, with the checked consequence: nothing is started, nothing is requested.
func TestGuard(t *testing.T) {
	r := setup(t, func(c *Config) { c.Hosts = []string{"jobs.example", "Named.example:99", "full.example."} })
	op := r.submit().start()
	id := op.id.String()
	own := r.tcp.Addr().String()
	_, port, err := net.SplitHostPort(own)
	must(t, err)
	start, control := "/testrouter/streaming01?files=1&format=x", "/testrouter/control?id="+id+"&action=cancel&x=1"
	// Both targets have invalid parameters, so that a request that passes the guard is answered 400 and changes
	// nothing.
	submit := "/testrouter/streaming01?x=1"
	for _, c := range []struct {
		name, method, target string
		headers              string
		want                 int
	}{
		// Host
		{"own address", "GET", "/readyz", "Host: " + own, 200},
		{"localhost", "GET", "/readyz", "Host: localhost", 200},
		{"localhost, our port", "GET", "/readyz", "Host: localhost:" + port, 200},
		{"localhost, another port", "GET", "/readyz", "Host: localhost:1", 200},
		{"LOCALHOST.", "GET", "/readyz", "Host: LOCALHOST.:" + port, 200},
		{"127.9.9.9", "GET", "/readyz", "Host: 127.9.9.9", 200},
		{"[::1]", "GET", "/readyz", "Host: [::1]:80", 200},
		{"[::1] without a port", "GET", "/readyz", "Host: [::1]", 200},
		{"named", "GET", "/readyz", "Host: jobs.example", 200},
		{"named, any port", "GET", "/readyz", "Host: Jobs.Example:123", 200},
		{"named with its port", "GET", "/readyz", "Host: named.example:99", 200},
		{"named with another port", "GET", "/readyz", "Host: named.example:98", 421},
		{"named in full", "GET", "/readyz", "Host: full.example", 200},
		{"another name", "GET", "/readyz", "Host: evil.example", 421},
		{"another name, for a start", "GET", start, "Host: evil.example", 421},
		{"another name, for liveness", "GET", "/healthz", "Host: evil.example", 421},
		{"a name that begins as ours", "GET", "/readyz", "Host: localhost.evil.example", 421},
		{"a name that ends as ours", "GET", "/readyz", "Host: evil-localhost", 421},
		{"a name below ours", "GET", "/readyz", "Host: x.jobs.example", 421},
		{"a name like an address", "GET", "/readyz", "Host: 127.0.0.1.evil.example", 421},
		{"another address", "GET", "/readyz", "Host: 192.0.2.1", 421},
		{"any address", "GET", "/readyz", "Host: 0.0.0.0", 421},
		{"an address as a number", "GET", "/readyz", "Host: 2130706433", 421},
		{"empty", "GET", "/readyz", "Host: ", 421},
		{"a port that is none", "GET", "/readyz", "Host: localhost:x", 421},
		{"a user", "GET", "/readyz", "Host: localhost@evil.example", 400},
		{"target of another host", "GET", "http://evil.example/readyz", "Host: localhost", 421},
		{"two hosts", "GET", "/readyz", "Host: localhost\r\nHost: evil.example", 400},
		{"none", "GET", "/readyz", "X: y", 400},
		// sites, for GET that changes something
		{"a program starts", "GET", start, "Host: " + own, 400},
		{"a person types", "GET", start, "Host: " + own + "\r\nSec-Fetch-Site: none", 400},
		{"own page", "GET", start, "Host: " + own + "\r\nSec-Fetch-Site: same-origin\r\nOrigin: http://" + own, 400},
		{"own page, old browser", "GET", start, "Host: " + own + "\r\nOrigin: http://" + own, 400},
		{
			"own page behind a proxy with TLS", "GET", start,
			"Host: jobs.example\r\nSec-Fetch-Site: same-origin\r\nOrigin: https://jobs.example", 400,
		},
		{
			"own page with the usual port", "GET", start,
			"Host: jobs.example:443\r\nSec-Fetch-Site: same-origin\r\nOrigin: https://jobs.example", 400,
		},
		{"own page with the usual port, http", "GET", start, "Host: jobs.example:80\r\nOrigin: http://jobs.example", 400},
		{"origin with the other scheme's port", "GET", start, "Host: jobs.example:443\r\nOrigin: http://jobs.example", 403},
		{"origin of https, old browser", "GET", start, "Host: " + own + "\r\nOrigin: https://" + own, 403},
		{"origin of https, the proxy says so", "GET", start, "Host: " + own + "\r\nOrigin: https://" + own +
			"\r\nX-Forwarded-Proto: https", 403},
		{
			"origin of https, browser says another", "GET", start,
			"Host: " + own + "\r\nSec-Fetch-Site: same-site\r\nOrigin: https://" + own, 403,
		},
		{"origin of no web", "GET", start, "Host: " + own + "\r\nOrigin: ftp://" + own, 403},
		{"another site", "GET", start, "Host: " + own + "\r\nSec-Fetch-Site: cross-site", 403},
		{"same site, other origin", "GET", start, "Host: " + own + "\r\nSec-Fetch-Site: same-site", 403},
		{"two answers", "GET", start, "Host: " + own + "\r\nSec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site", 403},
		{"unknown word", "GET", start, "Host: " + own + "\r\nSec-Fetch-Site: whatever", 403},
		{"foreign origin", "GET", start, "Host: " + own + "\r\nOrigin: https://evil.example", 403},
		{"null origin", "GET", start, "Host: " + own + "\r\nOrigin: null", 403},
		{"origin of another port", "GET", start, "Host: " + own + "\r\nOrigin: http://127.0.0.1:1", 403},
		{"origin that is none", "GET", start, "Host: " + own + "\r\nOrigin: %", 403},
		{"another site controls", "GET", control, "Host: " + own + "\r\nSec-Fetch-Site: cross-site", 403},
		{"another site asks HEAD", "HEAD", control, "Host: " + own + "\r\nSec-Fetch-Site: cross-site", 403},
		{"a program controls", "GET", control, "Host: " + own, 400},
		{
			"another site links to the page", "GET", "/testrouter/streaming01",
			"Host: " + own + "\r\nSec-Fetch-Site: cross-site", 200,
		},
		{
			"another site links to a stream", "GET", "/api/v1/operations/" + id,
			"Host: " + own + "\r\nSec-Fetch-Site: cross-site", 200,
		},
		// sites, for the other methods
		{"a program submits", "POST", submit, "Host: " + own, 400},
		{"another site submits", "POST", submit, "Host: " + own + "\r\nSec-Fetch-Site: cross-site", 403},
		{"old browser, another site submits", "POST", submit, "Host: " + own + "\r\nOrigin: http://evil.example", 403},
		{
			"another site cancels", "POST", "/api/v1/operations/" + id + "/cancel",
			"Host: " + own + "\r\nSec-Fetch-Site: same-site", 403,
		},
		{"another site sweeps", "POST", "/api/v1/sweep", "Host: " + own + "\r\nOrigin: null", 403},
		// paths
		{"climbs", "GET", "/api/v1/operations/../../../etc/passwd", "Host: " + own, 400},
		{"climbs, encoded", "GET", "/api/v1/operations/%2e%2e/log", "Host: " + own, 400},
		{"encoded slash", "GET", "/api/v1/operations/a%2Flog", "Host: " + own, 400},
		{"encoded slash, small", "GET", "/testrouter%2fstreaming01?x=1", "Host: " + own, 400},
		{"backslash", "GET", "/api/v1/operations/..%5c..%5c", "Host: " + own, 400},
		{"NUL", "GET", "/api/v1/operations/" + id + "%00/log", "Host: " + own, 400},
		{"CR LF", "GET", "/testrouter/a%0d%0aX-Y:%20z", "Host: " + own, 400},
		{"no ID", "GET", "/api/v1/operations/jobdir.lock", "Host: " + own, 400},
		{"empty ID", "GET", "/api/v1/operations//log", "Host: " + own, 400},
		{"ID with a suffix", "GET", "/api/v1/operations/" + id + ".json", "Host: " + own, 400},
		{"huge ID", "GET", "/api/v1/operations/" + strings.Repeat("a", 10000), "Host: " + own, 400},
		{"artifact that climbs", "GET", "/api/v1/operations/" + id + "/artifacts/..%2f..%2fjobdir.lock", "Host: " + own, 400},
		{"artifact that climbs, bare", "GET", "/api/v1/operations/" + id + "/artifacts/../../x", "Host: " + own, 400},
		{"double slash", "GET", "//evil.example/%2e%2e", "Host: " + own, 400},
		{"star", "OPTIONS", "*", "Host: " + own, 400},
		{"connect", "CONNECT", "evil.example:443", "Host: evil.example:443", 421},
		{"trace", "TRACE", "/readyz", "Host: " + own, 405},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &rig{t: t, tcp: r.tcp}
			if status, body := r.raw(r.tcp, c.method, c.target, strings.Split(c.headers, "\r\n")...); status != c.want {
				t.Errorf("got %d %.300s, want %d", status, body, c.want)
			}
		})
	}
	listing, err := r.tree.List()
	must(t, err)
	if len(listing.Markers) != 1 || len(listing.Requests) != 0 {
		t.Errorf("something got through: %+v", listing)
	}
	if status, _ := r.raw(r.unix, "GET", "/readyz", "Host: whatever.example"); status != 200 {
		t.Errorf("over the unix socket the host counts: %d", status)
	}
}

func TestTokens(t *testing.T) {
	r := setup(t, func(c *Config) {
		c.Tokens = []front.Token{{Name: "alice", Secret: aliceSecret}, {Name: "bob", Secret: bobSecret}}
	})
	for _, c := range []struct {
		name, path, header string
		want               int
	}{
		{"none", "/readyz", "", 401},
		{"none, for liveness", "/healthz", "", 200},
		{"none, for a page", "/testrouter/streaming01", "", 401},
		{"none, for the page to watch on", "/ui/", "", 200},
		{"none, for what that page asks", "/api/v1/operations", "", 401},
		{"none, for what does not exist", "/nothing/at/all", "", 401},
		{"first", "/readyz", "Bearer " + aliceSecret, 200},
		{"second", "/readyz", "Bearer " + bobSecret, 200},
		{"scheme in small letters", "/readyz", "bearer " + bobSecret, 200},
		{"wrong", "/readyz", "Bearer " + strings.Repeat("0", 32), 401},
		{"cut", "/readyz", "Bearer " + aliceSecret[:31], 401},
		{"empty", "/readyz", "Bearer ", 401},
		{"another scheme", "/readyz", "Basic " + aliceSecret, 401},
		{"in the URL", "/readyz?access_token=" + aliceSecret, "", 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			headers := []string{}
			if c.header != "" {
				headers = append(headers, "Authorization: "+c.header)
			}
			a := r.get(c.path, headers...)
			if a.status != c.want {
				t.Errorf("%d %s, want %d", a.status, a.body, c.want)
			}
			if c.want == 401 && !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("WWW-Authenticate: %q", a.header.Get("WWW-Authenticate"))
			}
		})
	}
	if status, _ := r.raw(r.unix, "GET", "/readyz", "Host: x"); status != 200 {
		t.Errorf("the unix socket asks for a token: %d", status)
	}
	bob := "Authorization: Bearer " + bobSecret
	by := func(a reply) any { return a.json(t)["created_by"] }
	if got := by(r.do("POST", "/testrouter/streaming01", "", bob)); got != "bob" {
		t.Errorf("created by %v, want the name of the token", got)
	}
	if got := by(r.do("POST", "/testrouter/streaming01", "", bob, "X-Created-By: carol")); got != "bob" {
		t.Errorf("created by %v, want the name of the token, whatever the client says", got)
	}
	if got := by(r.do("POST", "/testrouter/streaming01", "", bob, "X-Created-By: "+strings.Repeat("x",
		200))); got != "bob" {
		t.Errorf("created by %v, want the name of the token", got)
	}
	for _, bad := range []front.Token{{Name: "short", Secret: "abc"}, {Name: "blank", Secret: "0123456789 0123456789"}} {
		if _, err := front.New(front.Config{Tokens: []front.Token{bad}}); err == nil {
			t.Errorf("token %q is accepted", bad.Secret)
		}
	}
}

// X-Created-By is used only for requests without a token, valid or not, over every kind of connection.
func TestCreatedByBesideATokenIsIgnored(t *testing.T) {
	t.Parallel()
	const known, unknown, carol = "Authorization: Bearer " + bobSecret, "Authorization: Bearer not-a-secret-of-ours",
		"X-Created-By: carol"
	for name, list := range map[string][]front.Token{"with tokens": {{Name: "bob", Secret: bobSecret}}, "without tokens": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t, func(c *Config) { c.Tokens = list })
			for _, c := range []struct {
				network, token string
				status         int
				by             string
			}{
				{"tcp", known, 201, "bob"},
				{"tcp", unknown, 401, ""},
				{"unix", known, 201, "bob"},
				{"unix", unknown, 201, ""},
				{"unix", "", 201, "carol"},
				{"tcp", "", 401, ""},
			} {
				if list == nil { // no token is configured, and none is required
					c.status, c.by = 201, ""
					if c.token == "" {
						c.by = "carol"
					}
				}
				l, host := r.unix, "Host: x"
				if c.network == "tcp" {
					l, host = r.tcp, "Host: "+r.tcp.Addr().String()
				}
				headers := []string{host, carol, "Content-Length: 0"}
				if c.token != "" {
					headers = append(headers, c.token)
				}
				status, body := r.raw(l, "POST", "/testrouter/streaming01", headers...)
				var rec struct {
					ID statefs.ID
					By string `json:"created_by"`
				}
				if status == 201 {
					must(t, json.Unmarshal([]byte(body), &rec))
					stored, err := r.tree.ReadRecord(rec.ID)
					must(t, err)
					if stored.CreatedBy != c.by {
						t.Errorf("%s %q: the record says %q, want %q", c.network, c.token, stored.CreatedBy, c.by)
					}
				}
				if status != c.status || rec.By != c.by {
					t.Errorf("%s %q: %d by %q, want %d by %q", c.network, c.token, status, rec.By, c.status, c.by)
				}
			}
		})
	}
}

func TestListeningBeyondLoopbackNeedsAToken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		ok    bool
		alter func(*Config)
	}{
		{"bare", false, func(*Config) {}},
		{"with a token", true, func(c *Config) { c.Tokens = []front.Token{{Name: "a", Secret: aliceSecret}} }},
		{"insecure", true, func(c *Config) { c.Insecure = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			config := r.config
			c.alter(&config)
			s, err := New(config)
			must(t, err)
			defer s.Close()
			if err := s.front.CheckListeners([]net.Listener{fakeAddress{}}); (err == nil) != c.ok {
				t.Errorf("%v", err)
			}
		})
	}
}

// fakeAddress is a listener with an address that other machines could reach.
type fakeAddress struct{ net.Listener }

func (fakeAddress) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }

func TestSymlinksAndFoldersInJobsAreIgnored(t *testing.T) {
	t.Parallel()
	r := setup(t)
	op := r.submit()
	must(t, os.Symlink("/etc/passwd", filepath.Join(r.tree.JobsDir(), op.id.String()+".pause_requested")))
	must(t, os.Mkdir(filepath.Join(r.tree.JobsDir(), "folder"), 0o750))
	if a := r.get("/testrouter/operations"); a.status != http.StatusOK || !strings.Contains(a.body, op.id.String()) {
		t.Errorf("%d %s", a.status, a.body)
	}
}
