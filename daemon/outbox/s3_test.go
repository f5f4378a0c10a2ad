package outbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/internal/s3test"
	"github.com/jobdir/jobdir/statefs"
)

const minPart = 5 << 20 // servers accept no smaller ones

func bucket(t *testing.T, s *s3test.Server) *S3 {
	t.Helper()
	transport := NewS3Transport()
	t.Cleanup(transport.CloseIdleConnections)
	return &S3{
		Transport: transport, Endpoint: s.URL(), Bucket: "videos", Region: "us-east-1",
		Timeout: 30 * time.Second, PartBytes: minPart,
		AccessKey: given(t, s.AccessKey), SecretKey: given(t, s.SecretKey), ContentType: "application/json",
		Metadata: []Pair{{"event", "grün\n1"}},
	}
}

// onEach runs a test against each server.
func onEach(t *testing.T, do func(t *testing.T, s *s3test.Server)) {
	t.Parallel()
	for _, kind := range s3test.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			do(t, s3test.Begin(t, kind, "videos"))
		})
	}
}

func TestS3Put(t *testing.T) {
	onEach(t, func(t *testing.T, s *s3test.Server) {
		b := bucket(t, s)
		for name, text := range map[string]string{"detection/a.json": `{"a": 1}`, "empty": "", "ä b/ü+&?#%.json": "{}"} {
			var r Receipt
			var err error
			for range 2 {
				if r, err = b.Deliver(t.Context(), parcel(name, text)); err != nil {
					t.Fatal(err)
				}
			}
			sum := sha256.Sum256([]byte(text))
			if r.Bucket != "videos" || r.Object != name || r.Bytes != int64(len(text)) ||
				r.SHA256 != hex.EncodeToString(sum[:]) {
				t.Errorf("the receipt is %+v", r)
			}
			o, err := s.Get(t.Context(), "videos", name)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"jobdir-delivery": "op.1", "event": "grün\n1"}
			if string(o.Body) != text || o.Type != "application/json" || o.ETag != r.ETag || !maps.Equal(o.Metadata, want) {
				t.Errorf("%s is %+v", name, o)
			}
		}
	})
}

// keeper persists an upload as an entry would.
type keeper struct {
	upload *statefs.Upload
	kept   int
	fail   error
}

func (k *keeper) parcel(name string, content []byte) Parcel {
	return Parcel{
		ID: "op.1", Name: name, Upload: k.upload, Open: func() (Content,
			error,
		) {
			return inMemory{strings.NewReader(string(content))}, nil
		},
		Keep: func(up *statefs.Upload) error {
			k.upload = up
			k.kept++
			return k.fail
		},
	}
}

func noise(size int) []byte {
	data := make([]byte, size)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(data)
	return data
}

func TestS3Upload(t *testing.T) {
	onEach(t, func(t *testing.T, s *s3test.Server) {
		b := bucket(t, s)
		data := noise(2*minPart + 100)
		k := &keeper{}
		r, err := b.Deliver(t.Context(), k.parcel("big", data))
		if err != nil || k.upload != nil || k.kept != 2 {
			t.Fatalf("delivered %+v, %v; kept %+v", r, err, k)
		}
		sum := sha256.Sum256(data)
		o, err := s.Get(t.Context(), "videos", "big")
		if err != nil || !bytes.Equal(o.Body, data) || r.SHA256 != hex.EncodeToString(sum[:]) ||
			o.Metadata["jobdir-delivery"] != "op.1" || o.ETag != r.ETag {
			t.Errorf("there are %d bytes, %+v, %v", len(o.Body), o.Metadata, err)
		}
		if n, err := s.Uploads(t.Context(), "videos"); n != 0 || err != nil {
			t.Errorf("%d uploads are unfinished, %v", n, err)
		}
	})
}

// An upload that cannot be persisted leaves nothing on the server. An upload that the server has
// forgotten starts over.
func TestS3UploadOfNoUse(t *testing.T) {
	onEach(t, func(t *testing.T, s *s3test.Server) {
		b := bucket(t, s)
		data := noise(minPart + 1)
		k := &keeper{fail: errors.New("the disk is full")}
		if _, err := b.Deliver(t.Context(), k.parcel("big", data)); !errors.Is(err, k.fail) {
			t.Fatalf("delivered with %v", err)
		}
		if n, err := s.Uploads(t.Context(), "videos"); n != 0 || err != nil {
			t.Errorf("%d uploads are unfinished, %v", n, err)
		}
		k.fail = nil // k.upload was aborted
		if _, err := b.Deliver(t.Context(), k.parcel("big", data)); err != nil {
			t.Fatal(err)
		}
		if o, err := s.Get(t.Context(), "videos", "big"); err != nil || !bytes.Equal(o.Body, data) {
			t.Errorf("it is not there: %v", err)
		}
	})
}
