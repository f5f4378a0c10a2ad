package outbox

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/internal/s3test"
)

// Responses of real servers, and their meaning.
func TestS3Refusals(t *testing.T) {
	onEach(t, func(t *testing.T, s *s3test.Server) {
		front := s3test.NewInterceptor(t, s)
		for name, c := range map[string]struct {
			change  func(b *S3)
			answer  http.HandlerFunc
			refused bool
			says    []string
		}{
			"a wrong secret key": {
				func(b *S3) { b.SecretKey = given(t, "very-secret-words") }, nil, true,
				[]string{"403 (Forbidden) SignatureDoesNotMatch", "put the secret key"},
			},
			"an unknown access key": {
				func(b *S3) { b.AccessKey = given(t, "nobody") }, nil, true,
				[]string{"put an access key that the server knows"},
			},
			"a token of nobody": {
				func(b *S3) { b.SessionToken = given(t, "very-secret-token") }, nil, true,
				[]string{"put the session token that belongs to the keys"},
			},
			"no bucket": {func(b *S3) { b.Bucket = "nowhere" }, nil, true, []string{
				"404 (Not Found) NoSuchBucket",
				"make the bucket", "bucket nowhere",
			}},
			"a skewed clock": {nil, skewed, false, []string{"RequestTimeTooSkewed", "set the clock"}},
		} {
			b := bucket(t, s)
			b.Endpoint = front.URL
			front.Answer(c.answer)
			if c.change != nil {
				c.change(b)
			}
			_, err := b.Deliver(t.Context(), parcel("a.json", "{}"))
			_, refused := errors.AsType[*RefusedError](err)
			if err == nil || refused != c.refused {
				t.Errorf("%s: refused %t: %v", name, refused, err)
				continue
			}
			for _, text := range append(c.says, front.URL) {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: no %q in: %v", name, text, err)
				}
			}
			if strings.Contains(err.Error(), "very-secret") || strings.Contains(err.Error(), s.SecretKey) {
				t.Errorf("%s: a secret is in: %v", name, err)
			}
		}
	})
}

// skewed makes the server see a request with a time of an hour ago.
func skewed(w http.ResponseWriter, r *http.Request) {
	old := time.Now().Add(-time.Hour).UTC()
	was := r.Header.Get("X-Amz-Date")
	r.Header.Set("X-Amz-Date", old.Format("20060102T150405Z"))
	r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), was[:8], old.Format("20060102"), 1))
	s3test.PassOn(w)
}

// Responses that the test servers do not give on demand.
func TestS3Answers(t *testing.T) {
	t.Parallel()
	s := s3test.Begin(t, s3test.Versity, "videos")
	front := s3test.NewInterceptor(t, s)
	b := bucket(t, s)
	b.Endpoint = front.URL
	for _, c := range []struct {
		status  int
		code    string
		header  http.Header
		refused bool
		after   time.Duration
		says    string
	}{
		{500, "InternalError", nil, false, 0, "500 (Internal Server Error) InternalError"},
		{503, "SlowDown", http.Header{"Retry-After": {"40"}}, false, 40 * time.Second, "SlowDown"},
		{502, "", nil, false, 0, "502"},
		{429, "TooManyRequests", nil, false, 0, "429"},
		{507, "XMinioStorageFull", nil, false, 0, "make room on the server"},
		{501, "NotImplemented", nil, true, 0, "NotImplemented"},
		{400, "RequestTimeout", nil, false, 0, "RequestTimeout"},
		{400, "BadDigest", nil, false, 0, "what arrived is not what was sent"},
		{400, "ExpiredToken", nil, false, 0, "session"},
		{400, "InvalidRequest", nil, true, 0, "It was refused"},
		{403, "AccessDenied", nil, true, 0, "let these credentials write there"},
		{405, "MethodNotAllowed", nil, true, 0, "405"},
		{409, "OperationAborted", nil, false, 0, "409"},
		{412, "PreconditionFailed", nil, true, 0, "412"},
		{413, "EntityTooLarge", nil, true, 0, "larger than the server takes"},
		{
			301, "PermanentRedirect",
			http.Header{"Location": {"http://127.0.0.1:1/"}, "X-Amz-Bucket-Region": {"eu-west-9"}},
			true, 0,
			"redirects are not followed; write the endpoint and the region of the bucket into the job, which the server says is eu-west-9",
		},
		{
			307, "TemporaryRedirect",
			http.Header{"Location": {s.URL() + "/videos/a.json"}},
			true, 0,
			"redirects are not followed",
		},
	} {
		front.Refuse(c.status, c.code, c.header)
		before := front.Requests()
		_, err := b.Deliver(t.Context(), parcel("a.json", "{}"))
		_, refused := errors.AsType[*RefusedError](err)
		if err == nil || refused != c.refused || !strings.Contains(err.Error(), c.says) || front.Requests() != before+1 {
			t.Errorf("%d %s after %d requests: refused %t: %v", c.status, c.code, front.Requests()-before, refused, err)
		}
		later, _ := errors.AsType[*RetryAfterError](err)
		if !refused && (later == nil || later.After != c.after) {
			t.Errorf("%d %s: come back after %+v", c.status, c.code, later)
		}
	}
	// A secret in a server's message is not passed on.
	front.Answer(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte("<Error><Code>AccessDenied</Code><Message>no\nword of " + s.SecretKey + "</Message></Error>"))
	})
	if _, err := b.Deliver(t.Context(), parcel("a.json", "{}")); err == nil ||
		strings.Contains(err.Error(), s.SecretKey) || !strings.Contains(err.Error(), "no word of ***") {
		t.Errorf("it says: %v", err)
	}
}

func TestS3ReadOnly(t *testing.T) {
	t.Parallel()
	s := s3test.Begin(t, s3test.Versity, "videos")
	s.Kill()
	s.ReadOnly = true
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := bucket(t, s).Deliver(t.Context(), parcel("a.json", "{}"))
	if _, refused := errors.AsType[*RefusedError](err); !refused || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("read-only: %v", err)
	}
}

func TestS3Unreachable(t *testing.T) {
	t.Parallel()
	s := s3test.Prepare(t, s3test.Versity)
	_, err := bucket(t, s).Deliver(t.Context(), parcel("a.json", "{}"))
	if _, refused := errors.AsType[*RefusedError](err); refused || err == nil ||
		!strings.Contains(err.Error(), "connection refused; nothing listens there") {
		t.Errorf("without a server: %v", err)
	}
	dir := t.TempDir()
	s.CertFile, s.KeyFile = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	if err := s3test.WriteCertificate(s.CertFile, s.KeyFile); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = bucket(t, s).Deliver(t.Context(), parcel("a.json", "{}"))
	if _, refused := errors.AsType[*RefusedError](err); refused || err == nil ||
		!strings.Contains(err.Error(), "unknown authority; have the authority of its certificate") {
		t.Errorf("with a certificate of nobody: %v", err)
	}
	pem, err := os.ReadFile(s.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	trusting := NewS3Transport()
	defer trusting.CloseIdleConnections()
	trusting.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
	trusting.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem)
	if err := s.MakeBucket(t.Context(), "videos"); err != nil {
		t.Fatal(err)
	}
	b := bucket(t, s)
	b.Transport = trusting
	if _, err := b.Deliver(t.Context(), parcel("a.json", "{}")); err != nil {
		t.Errorf("with a certificate of somebody: %v", err)
	}
	b.Endpoint = "http://" + s.Addr()
	if _, err = b.Deliver(t.Context(), parcel("a.json", "{}")); err == nil {
		t.Error("plain HTTP was taken")
	}
}
