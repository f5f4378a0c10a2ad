package outbox

import (
	"context"
	"io"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Target is where results are delivered. It may be used concurrently.
type Target interface {
	// Place describes the target.
	Place() Place
	// Check returns why this daemon would refuse to deliver there, as far as that is known before a delivery.
	Check() error
	// Deliver delivers one parcel. See the package comment for its errors.
	Deliver(ctx context.Context, p Parcel) (Receipt, error)
	// Abort makes the target discard what an unfinished delivery has persisted with [Parcel.Keep].
	Abort(ctx context.Context, up *statefs.Upload) error
}

// Place is where a target is, in text that contains no secret, except for Key.
type Place struct {
	// Label names the target for people: in records, logs and answers. It holds no secret.
	Label string
	// Key is the same for all targets that can only be out of reach together; "" means that Label is. It stays in memory
	// and may hold a secret.
	Key string
	// Location and Bucket are in the receipt of a delivery of several files: the folder or URL that the names are below,
	// and the bucket.
	Location, Bucket string
}

// Parcel is the content of one delivery and its destination.
type Parcel struct {
	// ID is unique to the parcel and the same at each try.
	ID string
	// Name is the destination at the target: a name below a folder, or a URL. It is "" for kinds that
	// have neither.
	Name string
	// Type is the media type of the content.
	Type string
	// Expand replaces the references in a text of the settings; nil leaves it as it is.
	Expand func(text string) string
	// Open opens the content.
	Open func() (Content, error)
	// Upload is the progress of an earlier multipart try, nil when there is none; only [S3] sends
	// parts.
	Upload *statefs.Upload
	// Keep persists an Upload for the next try, before any part is sent; nil deletes it.
	Keep func(*statefs.Upload) error
}

// Content is what is delivered. It may be read concurrently at any offset, so that it need not be
// held in memory.
type Content interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// whole returns a reader of all the content, from its beginning.
func whole(c Content) *io.SectionReader { return io.NewSectionReader(c, 0, c.Size()) }

// Receipt describes where something was delivered.
type Receipt struct {
	Location string
	Bytes    int64
	SHA256   string
	// Bucket, Object and ETag are set for objects in a bucket.
	Bucket, Object, ETag string
}

// RefusedError means that no further try helps until a person changes something.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// RetryAfterError means that a later try may succeed; After is the pause that the target asks for,
// 0 for none.
type RetryAfterError struct {
	After time.Duration
	Err   error
}

func (e *RetryAfterError) Error() string { return e.Err.Error() }

func (e *RetryAfterError) Unwrap() error { return e.Err }

// LocalError means that a parcel was not delivered for a local reason, without reaching the target.
type LocalError struct{ Err error }

func (e *LocalError) Error() string { return e.Err.Error() }

func (e *LocalError) Unwrap() error { return e.Err }
