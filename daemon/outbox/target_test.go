package outbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobdir/jobdir/internal/addrtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type inMemory struct{ *strings.Reader }

func (inMemory) Close() error { return nil }

func parcel(name, text string) Parcel {
	return Parcel{ID: "op.1", Name: name, Open: func() (Content, error) { return inMemory{strings.NewReader(text)}, nil }}
}

// given returns the source of a secret: a file that has it.
func given(t *testing.T, secret string) Source {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	return Source{File: path}
}

func TestFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 2 {
		r, err := Folder{Path: dir}.Deliver(t.Context(), parcel("a/x.json", "{}"))
		want := Receipt{
			Location: filepath.Join(dir, "a/x.json"), Bytes: 2,
			SHA256: "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
		}
		if err != nil || r != want {
			t.Fatalf("delivered as %+v, %v", r, err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir, "a/x.json")); err != nil || string(data) != "{}" {
		t.Errorf("it is %q, %v", data, err)
	}
}

func TestFolderThatTakesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "folder", "full"), 0o700),
		os.Symlink("..", filepath.Join(dir, "folder", "up"))); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		folder, file, says string
		refused            bool
	}{
		"a folder":          {filepath.Join(dir, "folder"), "full", "something else has that name", true},
		"a way out":         {filepath.Join(dir, "folder"), "up/x", "something else has that name", true},
		"missing":           {filepath.Join(dir, "none"), "x", "make the folder, or mount its disk", false},
		"a file on the way": {dir, "file/x", "something else has that name", true},
	} {
		_, err := Folder{Path: c.folder}.Deliver(t.Context(), parcel(c.file, "{}"))
		_, refused := errors.AsType[*RefusedError](err)
		if err == nil || refused != c.refused || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, refused %v", name, err, refused)
		}
	}
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func serve(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return server.URL
}

func webhook(t *testing.T, allow []netip.Prefix) *Webhook {
	t.Helper()
	sender := NewSender(allow)
	t.Cleanup(sender.CloseIdleConnections)
	return &Webhook{Sender: sender, Method: http.MethodPost, Headers: []Pair{{"X-From", "us"}}, Timeout: time.Minute}
}

// The receiver verifies the signature as specified, with code of its own.
func TestWebhookIsSigned(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("k", 24)
	secret := given(t, "whsec_"+base64.StdEncoding.EncodeToString([]byte(key))+"\n\nwhsec_"+
		base64.StdEncoding.EncodeToString([]byte(strings.Repeat("o", 32)))+"\n")
	got := make(chan string, 1)
	address := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mac := hmac.New(sha256.New, []byte(key))
		_, _ = fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
		first, _, two := strings.Cut(r.Header.Get("webhook-signature"), " ")
		got <- fmt.Sprint(r.Method, r.URL, string(body), r.Header.Get("webhook-id"), r.Header.Get("X-From"),
			r.Header.Get("Content-Type"), first == "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)), two)
	})
	w := webhook(t, loopback)
	w.Secret = secret
	r, err := w.Deliver(t.Context(), parcel(address+"/hook?token=t", `{"a":1}`))
	if err != nil || r.Location != address || r.Bytes != 7 {
		t.Fatalf("delivered as %+v, %v", r, err)
	}
	if said, want := <-got, fmt.Sprint("POST", "/hook?token=t", `{"a":1}`, "op.1", "us", "application/json", true,
		true); said != want {
		t.Errorf("the receiver has\n%s\nwant\n%s", said, want)
	}
}

func TestWebhookAnswers(t *testing.T) {
	t.Parallel()
	private := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed to another server: %s", r.URL)
	})
	for status, c := range map[int]struct {
		refused bool
		after   time.Duration
	}{
		400: {true, 0}, 401: {true, 0}, 403: {true, 0}, 404: {true, 0}, 410: {true, 0}, 413: {true, 0},
		308: {true, 0}, 301: {true, 0},
		408: {false, 0}, 429: {false, 0}, 500: {false, 0}, 503: {false, 120 * time.Second},
	} {
		address := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/hook" {
				t.Errorf("a redirect was followed to %s", r.URL)
			}
			w.Header().Set("Location", "/elsewhere")
			if status == http.StatusMovedPermanently {
				w.Header().Set("Location", private) // it is allowed here, but must not be requested
			}
			if c.after > 0 {
				w.Header().Set("Retry-After", "120")
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "what the receiver says is nothing for a record")
		})
		_, err := webhook(t, loopback).Deliver(t.Context(), parcel(address+"/hook?token=secret", "{}"))
		_, refused := errors.AsType[*RefusedError](err)
		later, _ := errors.AsType[*RetryAfterError](err)
		if err == nil || refused != c.refused || !refused && (later == nil || later.After != c.after) ||
			strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "receiver") {
			t.Errorf("%d: %v, refused %v", status, err, refused)
		}
		if err != nil && !strings.Contains(err.Error(), strconv.Itoa(status)) {
			t.Errorf("%d: %v does not say so", status, err)
		}
	}
}

func TestWebhookThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	_, err := webhook(t, loopback).Deliver(t.Context(), parcel("http://"+addrtest.For(t)+"/hook?token=secret", "{}"))
	if err == nil || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "secret") {
		t.Errorf("nobody there: %v", err)
	}
	slow := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a server notices that a client has disconnected only after it has read the body
		<-r.Context().Done()
	})
	w := webhook(t, loopback)
	w.Timeout = 50 * time.Millisecond
	if _, err := w.Deliver(t.Context(), parcel(slow, "{}")); err == nil ||
		!strings.Contains(err.Error(), "no answer within 50ms") {
		t.Errorf("slow: %v", err)
	}
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	_, err = webhook(t, loopback).Deliver(t.Context(), parcel(tls.URL, "{}"))
	if _, refused := errors.AsType[*RefusedError](err); err == nil || refused ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate of nobody: %v", err)
	}
}

func TestWebhookToPrivateAddress(t *testing.T) {
	t.Parallel()
	address := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was connected to") })
	named := strings.Replace(address, "127.0.0.1", "localhost", 1)
	for _, url := range []string{
		address, named, strings.Replace(address, "127.0.0.1", "[::ffff:127.0.0.1]", 1),
		strings.Replace(address, "127.0.0.1", "0.0.0.0", 1),
	} {
		_, err := webhook(t, nil).Deliver(t.Context(), parcel(url, "{}"))
		if _, refused := errors.AsType[*RefusedError](err); !refused || !strings.Contains(err.Error(), "--webhook-allow") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestMayReach(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
		"255.255.255.255", "198.18.0.1",
		"::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "fec0::1",
	} {
		if mayReach(netip.MustParseAddr(text), nil) {
			t.Errorf("%s may be reached", text)
		}
	}
	for _, text := range []string{"1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8"} {
		if !mayReach(netip.MustParseAddr(text), nil) {
			t.Errorf("%s may not be reached", text)
		}
	}
	for allow, text := range map[string]string{
		"10.0.0.0/8": "10.9.9.9", "10.9.9.9": "10.9.9.9",
		"10.1.1.1/8": "::ffff:10.2.2.2", "fc00::/7": "fd00::1",
	} {
		prefixes, err := ParseAllow(allow)
		if err != nil || !mayReach(netip.MustParseAddr(text), prefixes) {
			t.Errorf("%s does not allow %s: %v", allow, text, err)
		}
	}
	if _, err := ParseAllow("private"); err == nil {
		t.Error("a word is no network")
	}
}

func TestHostsThatAreKnownNotToBePublic(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"10.1.2.3", "::ffff:10.1.2.3", "169.254.169.254", "localhost", "LOCALHOST.",
		"a.localhost", "::1", "0.0.0.0",
	} {
		private, ok := errors.AsType[*PrivateError](CheckHost(host, nil))
		if !ok || !strings.Contains(private.Error(), "--webhook-allow "+private.Addr.String()) {
			t.Errorf("%s: %v", host, private)
		}
	}
	for _, host := range []string{"example.org", "8.8.8.8", "localhost.example.org"} {
		if err := CheckHost(host, nil); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		if err := CheckHost(host, loopback); err != nil {
			t.Errorf("%s, which is allowed: %v", host, err)
		}
	}
}

func TestInside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	storage, link := filepath.Join(dir, "storage"), filepath.Join(dir, "link")
	if err := errors.Join(os.MkdirAll(filepath.Join(storage, "jobs"), 0o700),
		os.Symlink("storage/jobs", link)); err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]bool{
		storage: true, filepath.Join(storage, "none"): true, link: true, filepath.Join(dir, "other", "..", "storage"): true,
		dir: false, filepath.Join(dir, "none"): false, storage + "2": false,
	} {
		if Inside(folder, storage) != want {
			t.Errorf("%s: %v", folder, !want)
		}
	}
}

func TestSecretsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "\n", "hunter2", "whsec_", "whsec_c2hvcnQ=", "whsec_!!!",
		base64.StdEncoding.EncodeToString(make([]byte, 32)),
	} {
		if _, err := ParseSecrets(text); err == nil || text != "" &&
			strings.Contains(err.Error(), strings.TrimSpace(text+"#")) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
