package outbox

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/internal/s3test"
)

func lineTo(t *testing.T, s *s3test.Server, shallow bool) *s3test.Line {
	t.Helper()
	l, err := s3test.NewLine(s.Addr(), shallow)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// A slow line does not count as one without progress.
func TestS3Slow(t *testing.T) {
	t.Parallel()
	s := s3test.Begin(t, s3test.Versity, "videos")
	l := lineTo(t, s, true)
	l.Slow(1 << 10)
	b := bucket(t, s)
	b.Endpoint, b.Timeout = l.URL(), 5*time.Second
	body := strings.Repeat("0123456789abcdef", 16<<10/16)
	if _, err := b.Deliver(t.Context(), parcel("slow", body)); err != nil {
		t.Fatal(err)
	}
	if o, err := s.Get(t.Context(), "videos", "slow"); err != nil || string(o.Body) != body {
		t.Errorf("it is not there: %v", err)
	}
}

// A server that accepts a connection and then does nothing is given up, with a reason.
func TestS3Stalls(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	transport := NewS3Transport()
	defer transport.CloseIdleConnections()
	for _, size := range []int{2, 3 << 20} {
		b := &S3{
			Transport: transport, Endpoint: "http://" + silent.Addr().String(), Bucket: "videos", Region: "us-east-1",
			Timeout: time.Second / 2, AccessKey: given(t, "a"), SecretKey: given(t, "b"),
		}
		_, err = b.Deliver(t.Context(), parcel("a", strings.Repeat("x", size)))
		if _, refused := errors.AsType[*RefusedError](err); refused || err == nil ||
			!strings.Contains(err.Error(), "nothing moved for 500ms") {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// A connection that breaks in the middle of a body costs that part, and leaves no object.
func TestS3Cut(t *testing.T) {
	onEach(t, func(t *testing.T, s *s3test.Server) {
		l := lineTo(t, s, false)
		b := bucket(t, s)
		b.Endpoint = l.URL()
		l.CutAfter(100 << 10)
		small := strings.Repeat("x", 200<<10)
		if _, err := b.Deliver(t.Context(), parcel("small", small)); err == nil {
			t.Fatal("a body that was cut was taken")
		}
		if _, err := s.Stat(t.Context(), "videos", "small"); !errors.Is(err, s3test.ErrNoObject) {
			t.Errorf("half of it is there: %v", err)
		}
		data := noise(4 * minPart)
		k := &keeper{}
		before := l.Passed()
		l.CutAfter(2*minPart + minPart/2)
		if _, err := b.Deliver(t.Context(), k.parcel("big", data)); err == nil || k.upload == nil {
			t.Fatalf("a body that was cut was taken: %v", err)
		}
		l.CutAfter(-1)
		if _, err := b.Deliver(t.Context(), k.parcel("big", data)); err != nil {
			t.Fatal(err)
		}
		if sent := l.Passed() - before; sent > 5*minPart {
			t.Errorf("%d bytes were sent of %d", sent, len(data))
		}
		if o, err := s.Get(t.Context(), "videos", "big"); err != nil || !bytes.Equal(o.Body, data) {
			t.Errorf("it is not there: %v", err)
		}
	})
}

// A server that is killed during an upload and restarted still has the parts that it accepted.
func TestS3Killed(t *testing.T) {
	onEach(t, func(t *testing.T, s *s3test.Server) {
		b := bucket(t, s)
		data := noise(3 * minPart)
		k := &keeper{}
		p := k.parcel("big", data)
		p.Open = func() (Content, error) { return killing{until{bytes.NewReader(data), int64(len(data))}, s}, nil }
		_, err := b.Deliver(t.Context(), p)
		if _, refused := errors.AsType[*RefusedError](err); err == nil || refused || k.upload == nil {
			t.Fatalf("delivered with %v", err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Deliver(t.Context(), k.parcel("big", data)); err != nil {
			t.Fatal(err)
		}
		if o, err := s.Get(t.Context(), "videos", "big"); err != nil || !bytes.Equal(o.Body, data) {
			t.Errorf("it is not there: %v", err)
		}
	})
}

// killing is a content that kills a server when it is read beyond half of the second part.
type killing struct {
	until
	server *s3test.Server
}

func (k killing) ReadAt(p []byte, at int64) (int, error) {
	if at > minPart+minPart/2 {
		k.server.Kill()
	}
	return k.until.ReadAt(p, at)
}
