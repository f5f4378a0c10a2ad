package daemon

import (
	"errors"
	"time"

	"github.com/jobdir/jobdir/daemon/work"
)

// The types of handlers, so that a program with handlers imports this package only.
type (
	// Handler is Go code that does the work of a job.
	Handler = work.Handler
	// Handlers maps the names that definitions use to handlers.
	Handlers = work.Handlers
	// Op is the operation as its handler sees it.
	Op = work.Op
	// Item is one unit of work of a run.
	Item = work.Item
	// AttemptError is a handler's error that also determines what happens next.
	AttemptError = work.AttemptError
)

// The causes with which work is ended early. A handler gets them from context.Cause.
var (
	// ErrCancelled means that the operation was cancelled.
	ErrCancelled = work.ErrCancelled
	// ErrInterrupted means that the daemon stops; the operation continues when the daemon starts again.
	ErrInterrupted = work.ErrInterrupted
)

// ErrDetach is the cause with which the context of Daemon.Run ends if commands are to continue
// without the daemon.
var ErrDetach = errors.New("the daemon stops and leaves its commands running")

// RetryAfter wraps err as a failure that is worth a retry, after a wait of at least 1 ms.
func RetryAfter(err error, wait time.Duration) error { return work.RetryAfter(err, wait) }

// NeedsPerson wraps err as a failure that only a person can fix: the operation becomes
// failed_manual.
func NeedsPerson(err error) error { return work.NeedsPerson(err) }
