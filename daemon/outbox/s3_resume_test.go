package outbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/jobdir/jobdir/internal/s3test"
	"github.com/jobdir/jobdir/statefs"
)

// until is a content that cannot be read beyond limit.
type until struct {
	*bytes.Reader
	limit int64
}

var errBehind = errors.New("a bad sector")

func (u until) ReadAt(p []byte, at int64) (int, error) {
	if at+int64(len(p)) > u.limit {
		return 0, errBehind
	}
	return u.Reader.ReadAt(p, at)
}

func (until) Close() error { return nil }

// sending counts the request bodies.
type sending struct {
	http.RoundTripper
	bodies, bytes atomic.Int64
}

func (s *sending) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut {
		s.bodies.Add(1)
		s.bytes.Add(r.ContentLength)
	}
	return s.RoundTripper.RoundTrip(r)
}

// A try that ends half-way leaves its parts, and the next try sends only the others.
func TestS3Resume(t *testing.T) {
	onEach(t, func(t *testing.T, s *s3test.Server) {
		b := bucket(t, s)
		data := noise(4*minPart + 7)
		k := &keeper{}
		p := k.parcel("big", data)
		p.Open = func() (Content, error) { return until{bytes.NewReader(data), 3 * minPart}, nil }
		if _, err := b.Deliver(t.Context(), p); !errors.Is(err, errBehind) || k.upload == nil {
			t.Fatalf("delivered with %v", err)
		}
		count := &sending{RoundTripper: b.Transport}
		b.Transport = count
		if _, err := b.Deliver(t.Context(), k.parcel("big", data)); err != nil {
			t.Fatal(err)
		}
		if count.bodies.Load() != 2 || count.bytes.Load() != minPart+7 {
			t.Errorf("%d parts of %d bytes were sent again", count.bodies.Load(), count.bytes.Load())
		}
		if o, err := s.Get(t.Context(), "videos", "big"); err != nil || !bytes.Equal(o.Body, data) {
			t.Errorf("it is not there: %v", err)
		}
	})
}

// A complete upload is not sent again when its receipt was lost.
func TestS3ResumeComplete(t *testing.T) {
	onEach(t, func(t *testing.T, s *s3test.Server) {
		b := bucket(t, s)
		data := noise(2*minPart + 7)
		k := &keeper{}
		p := k.parcel("big", data)
		keep := p.Keep
		p.Keep = func(up *statefs.Upload) error {
			if up == nil {
				return errBehind
			}
			return keep(up)
		}
		if _, err := b.Deliver(t.Context(), p); !errors.Is(err, errBehind) || k.upload == nil {
			t.Fatalf("delivered with %v", err)
		}
		count := &sending{RoundTripper: b.Transport}
		b.Transport = count
		o, err := s.Stat(t.Context(), "videos", "big")
		if err != nil {
			t.Fatal(err)
		}
		r, err := b.Deliver(t.Context(), k.parcel("big", data))
		sum := sha256.Sum256(data)
		if err != nil || count.bodies.Load() != 0 || k.upload != nil || r.ETag != o.ETag ||
			r.SHA256 != hex.EncodeToString(sum[:]) || r.Bytes != int64(len(data)) {
			t.Errorf("%d parts were sent again: %+v, %v", count.bodies.Load(), r, err)
		}
		k.upload = &statefs.Upload{Name: "big", ID: "unknown", Bytes: int64(len(data)), PartBytes: minPart}
		k.upload.PartBytes = 0 // as if the entry had been edited
		if _, err := b.Deliver(t.Context(), k.parcel("big", data)); err != nil || count.bodies.Load() != 3 {
			t.Errorf("%d parts were sent: %v", count.bodies.Load(), err)
		}
		k.upload = &statefs.Upload{Name: "big", ID: "unknown", Bytes: int64(len(data)), PartBytes: minPart}
		data[7]++
		if _, err := b.Deliver(t.Context(), k.parcel("big", data)); err != nil || count.bodies.Load() != 6 {
			t.Errorf("%d parts of something else were sent: %v", count.bodies.Load(), err)
		}
	})
}

// Content that has changed since is sent again from the start, even if it has the same size.
func TestS3ResumeOther(t *testing.T) {
	onEach(t, func(t *testing.T, s *s3test.Server) {
		b := bucket(t, s)
		data := noise(2*minPart + 7)
		k := &keeper{}
		for _, then := range [][]byte{append([]byte("changed"), data[7:]...), data[:2*minPart]} {
			p := k.parcel("big", data)
			p.Open = func() (Content, error) { return until{bytes.NewReader(data), minPart}, nil }
			if _, err := b.Deliver(t.Context(), p); !errors.Is(err, errBehind) || k.upload == nil {
				t.Fatalf("delivered with %v", err)
			}
			if _, err := b.Deliver(t.Context(), k.parcel("big", then)); err != nil {
				t.Fatal(err)
			}
			if o, err := s.Get(t.Context(), "videos", "big"); err != nil || !bytes.Equal(o.Body, then) {
				t.Errorf("something else is there: %v", err)
			}
		}
		if n, err := s.Uploads(t.Context(), "videos"); n != 0 || err != nil {
			t.Errorf("%d uploads are unfinished, %v", n, err)
		}
	})
}

func TestS3Abort(t *testing.T) {
	onEach(t, func(t *testing.T, s *s3test.Server) {
		b := bucket(t, s)
		data := noise(2 * minPart)
		k := &keeper{}
		p := k.parcel("big", data)
		p.Open = func() (Content, error) { return until{bytes.NewReader(data), minPart}, io.EOF }
		if _, err := b.Deliver(t.Context(), p); !errors.Is(err, io.EOF) || k.upload != nil {
			t.Fatalf("delivered with %v", err)
		}
		p.Open = func() (Content, error) { return until{bytes.NewReader(data), minPart}, nil }
		if _, err := b.Deliver(t.Context(), p); k.upload == nil {
			t.Fatalf("delivered with %v", err)
		}
		for range 2 {
			if err := b.Abort(t.Context(), k.upload); err != nil {
				t.Error(err)
			}
		}
		if n, err := s.Uploads(t.Context(), "videos"); n != 0 || err != nil {
			t.Errorf("%d uploads are unfinished, %v", n, err)
		}
	})
}
