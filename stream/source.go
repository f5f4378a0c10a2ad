package stream

import (
	"errors"
	"os"
)

// ErrShutdown is the cause ([context.Cause]) with which a server ends the context of its streams when it stops.
// [Events] then writes a last comment; [Text] writes nothing.
var ErrShutdown = errors.New("the server is shutting down")

var errWakeClosed = errors.New("follow the operation: its source closed the wake channel before the operation ended")

// Snapshot is what is known of an operation at one moment. Its slices are not changed by anyone.
type Snapshot struct {
	// Header is the frozen header, a JSON object. Empty: there is none yet, and the stream waits for it.
	Header []byte
	// Footer is the frozen footer, a JSON object. It is there when Ended is true.
	Footer []byte
	// Ended says that the stream of the operation has its end. It never becomes false again, and Footer and
	// LogBytes do not change after it.
	Ended bool
	// LogBytes is the sealed length of the log. It counts only when Ended is true; bytes beyond it are not sent.
	LogBytes int64
	// State is the word for the state of the operation, such as "paused". Empty: not known.
	State string
	// StalledAt is when the work was found to give no sign of life, as in RFC 3339. Empty: it does.
	StalledAt string
	// Steps has a JSON object for each step of an operation with steps, in their order. Empty: it has none, or they are not known.
	Steps [][]byte
	// Progress is a JSON value for people and programs that draw bars. Empty: not known.
	Progress []byte
}

// Source is one reader's view of one operation. Each call of [Text], [Events] or [WaitFooter] needs a Source of its
// own, because it consumes what Wake delivers. The methods are called by one goroutine.
type Source interface {
	// Snapshot returns what is known now. It is called for every piece of log that is read, so it should be
	// cheap. An error ends the stream.
	Snapshot() (Snapshot, error)

	// Log opens the log for reading. The stream closes it. An error that is fs.ErrNotExist means that there is
	// no log yet; the stream asks again when it wakes. Any other error ends the stream.
	Log() (*os.File, error)

	// Wake returns the channel on which the Source says "look again": after the log came into being or grew,
	// and after anything in the Snapshot changed. It has a capacity of one and is sent to without blocking,
	// so that many changes are one wake and a change during a look is not lost. It always returns the same
	// channel. Closing it ends the stream with an error.
	Wake() <-chan struct{}
}
