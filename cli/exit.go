package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"syscall"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// The exit codes. For the commands that wait for an operation (run, wait), 0, 1, 2 and 130 mean only the
// outcome of the operation. Codes above 63 are those of sysexits(3).
const (
	exitSuccess = 0 // done; the operation ended with result success
	// the operation ended with result failure; validate: a definition has a mistake; by a filter: all that matched
	// failed; with --wait: a request did not take effect
	exitFailure   = 1
	exitPartial   = 2   // the operation went to its end and some items failed; by a filter: some of what matched failed
	exitPerson    = 3   // run, wait: the operation waits for a person
	exitUsage     = 64  // the command line, the configuration or a parameter is wrong
	exitNotFound  = 66  // there is no such operation, job or file
	exitNoDaemon  = 69  // no daemon answers
	exitInternal  = 70  // anything else: the message says what
	exitPortInUse = 71  // serve: another program listens on the address
	exitInUse     = 73  // serve: another daemon holds the storage
	exitTemporary = 75  // the outcome is not known: cut off, left running, or refused for now
	exitForbidden = 77  // the daemon wants a token, or a file may not be read
	exitCancelled = 130 // the operation was cancelled
	// the reader of the output is gone; 128 + SIGPIPE, as a shell reports a program that this signal killed
	exitNoReader = 141
)

// usageError is a mistake on the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// notFoundError means that a named object does not exist.
type notFoundError struct{ err error }

func (e *notFoundError) Error() string { return e.err.Error() }
func (e *notFoundError) Unwrap() error { return e.err }

func notFoundf(format string, args ...any) error {
	return &notFoundError{err: fmt.Errorf(format, args...)}
}

// noEffectError means that a request with --wait has no effect.
type noEffectError struct{ err error }

func (e *noEffectError) Error() string { return e.err.Error() }
func (e *noEffectError) Unwrap() error { return e.err }

// codeError carries an exit code; its message has already been printed.
type codeError struct{ code int }

func (e *codeError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// exitCode maps an error to the exit code. No other function does.
func exitCode(err error) int {
	if err == nil {
		return exitSuccess
	}
	if said, ok := errors.AsType[*codeError](err); ok {
		return said.code
	}
	if _, ok := errors.AsType[*noEffectError](err); ok {
		return exitFailure
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*notFoundError](err); ok {
		return exitNotFound
	}
	if _, ok := errors.AsType[*statefs.LockedError](err); ok {
		return exitInUse
	}
	if errors.Is(err, errPortInUse) {
		return exitPortInUse
	}
	if _, ok := errors.AsType[*client.TextError](err); ok {
		return exitUsage
	}
	if refused, ok := errors.AsType[*client.Error](err); ok {
		return exitCodeOfStatus(refused.Status)
	}
	if _, ok := errors.AsType[*client.CutError](err); ok {
		return exitTemporary
	}
	switch {
	case client.Unreachable(err):
		return exitNoDaemon
	case errors.Is(err, errReaderGone), errors.Is(err, syscall.EPIPE):
		// the second is returned where SIGPIPE is ignored, so that the signal killed no process
		return exitNoReader
	case errors.Is(err, statefs.ErrNotLive):
		return exitNotFound
	case errors.Is(err, fs.ErrPermission):
		return exitForbidden
	case errors.Is(err, context.DeadlineExceeded):
		return exitTemporary
	default:
		return exitInternal
	}
}

func exitCodeOfStatus(status int) int {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return exitForbidden
	case status == http.StatusNotFound, status == http.StatusGone:
		return exitNotFound
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
		return exitTemporary
	case status >= http.StatusBadRequest && status < http.StatusInternalServerError:
		return exitUsage
	default:
		return exitInternal
	}
}

// outcome returns the exit code for the result of an operation.
func outcome(result statefs.Result) int {
	switch result {
	case statefs.Success:
		return exitSuccess
	case statefs.Partial:
		return exitPartial
	case statefs.CancelledResult:
		return exitCancelled
	case statefs.Failure:
		return exitFailure
	}
	return exitFailure
}
