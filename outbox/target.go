package outbox

import (
	"io"
	"time"
)

// Parcel is what is delivered.
type Parcel struct {
	// ID is the same at each try, and no other parcel's.
	ID string
	// Name is where at the target it goes: a name below a folder, an address.
	Name string
	// Open gives the content from its beginning.
	Open func() (io.ReadCloser, error)
}

// Receipt says where something was delivered.
type Receipt struct {
	Location string
	Bytes    int64
	SHA256   string
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
