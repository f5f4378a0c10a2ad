package outbox

import (
	"io"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Parcel is what is delivered.
type Parcel struct {
	// ID is the same at each try, and no other parcel's.
	ID string
	// Name is where at the target it goes: a name below a folder, an address.
	Name string
	// Open gives the content.
	Open func() (Content, error)
	// Upload is how far an earlier try in parts came, nil when there is none; only [S3] sends in parts.
	Upload *statefs.Upload
	// Keep has Upload kept for the next try, before anything of it is sent, and forgotten when it is nil.
	Keep func(*statefs.Upload) error
}

// Content is what is delivered. It may be read from several goroutines, at any place, so that nobody has to hold all of it.
type Content interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// whole reads all of a content, from its beginning.
func whole(c Content) *io.SectionReader { return io.NewSectionReader(c, 0, c.Size()) }

// Receipt says where something was delivered.
type Receipt struct {
	Location string
	Bytes    int64
	SHA256   string
	// Bucket, Object and ETag are of what is in a bucket.
	Bucket, Object, ETag string
}

// RefusedError says that no further try would help until a person changes something.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// LaterError says that a target asks to be left alone for a while.
type LaterError struct {
	After time.Duration
	Err   error
}

func (e *LaterError) Error() string { return e.Err.Error() }

func (e *LaterError) Unwrap() error { return e.Err }

// OwnError says that something on our side kept a parcel from being delivered: the target was not asked.
type OwnError struct{ Err error }

func (e *OwnError) Error() string { return e.Err.Error() }

func (e *OwnError) Unwrap() error { return e.Err }
