package stream

import (
	"errors"
	"os"
)

// ErrShutdown is the [context.Cause] with which a stopping server ends the contexts of its streams. [Events] then
// writes a last comment; [Text] writes nothing.
var ErrShutdown = errors.New("the server is shutting down")

var errWakeClosed = errors.New("follow the operation: its source closed the wake channel before the operation ended")

// Snapshot is the state of an operation at one moment. Its slices must not be modified.
type Snapshot struct {
	// Header is the frozen header, a JSON object. While it is empty, the stream waits for it.
	Header []byte
	// Footer is the frozen footer, a JSON object. It is set when Ended is true.
	Footer []byte
	// Ended means that the stream of the operation has its end. It never becomes false again, and Footer and LogBytes
	// no longer change.
	Ended bool
	// LogBytes is the sealed length of the log, valid only when Ended is true; bytes beyond it are not sent.
	LogBytes int64
	// State is the name of the operation's state, such as "paused"; empty if unknown.
	State string
	// StalledAt is when the work was found to give no signs of life, in RFC 3339; empty while it gives them.
	StalledAt string
	// Steps has a JSON object for each step of the operation, in order; empty if it has none, or if they are unknown.
	Steps [][]byte
	// Progress is a JSON value for people and for programs that draw bars; empty if unknown.
	Progress []byte
}

// Source is one reader's view of one operation. Each call of [Text], [Events] or [WaitFooter] needs its own Source,
// because it consumes the wakes. One goroutine calls the methods.
type Source interface {
	// Snapshot returns the current state. It is called for every piece of log that is read, so it should be cheap. An
	// error ends the stream.
	Snapshot() (Snapshot, error)

	// Log opens the log for reading. The stream closes it. While there is no log, the error wraps fs.ErrNotExist; the
	// stream calls Log again after the next wake. Any other error ends the stream.
	Log() (*os.File, error)

	// Wake returns the channel on which the Source announces changes: after the log was created or grew, and after
	// any change of the Snapshot. It has a capacity of one and is sent to without blocking, so that many changes are
	// one wake and a change during a read is not lost. It is always the same channel. Closing it ends the stream
	// with an error.
	Wake() <-chan struct{}
}
