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

// The exit codes. 0, 1, 2 and 130 are the outcomes of an operation and nothing else for the commands that wait for one
// (run, wait); those above 63 are from sysexits(3).
const (
	exitSuccess   = 0   // done; the operation ended with result success
	exitFailure   = 1   // the operation ended with result failure; validate: a definition has a mistake; by a filter: all that matched failed; with --wait: a request did not take effect
	exitPartial   = 2   // the operation went to its end and some items failed; by a filter: some of what matched failed
	exitInUse     = 3   // serve: another daemon holds the storage
	exitPerson    = 3   // run, wait: the operation waits for a person
	exitUsage     = 64  // the command line, the configuration or a parameter is wrong
	exitNotFound  = 66  // there is no such operation, job or file
	exitNoDaemon  = 69  // no daemon answers
	exitInternal  = 70  // anything else: the message says what
	exitTemporary = 75  // the outcome is not known: cut off, left running, or refused for now
	exitForbidden = 77  // the daemon wants a token, or a file may not be read
	exitCancelled = 130 // the operation was cancelled
	exitNoReader  = 141 // nobody reads the output any more; 128 and SIGPIPE, as a shell says of a program that this signal ended
)

// usageError is a mistake of the person at the keyboard.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// notFoundError says that what was named does not exist.
type notFoundError struct{ err error }

func (e *notFoundError) Error() string { return e.err.Error() }
func (e *notFoundError) Unwrap() error { return e.err }

func notFoundf(format string, args ...any) error {
	return &notFoundError{err: fmt.Errorf(format, args...)}
}

// codeError carries an exit code for which everything has been said already.
type codeError struct{ code int }

func (e *codeError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// exitCode is the one place where an error becomes an exit code.
func exitCode(err error) int {
	if err == nil {
		return exitSuccess
	}
	if said, ok := errors.AsType[*codeError](err); ok {
		return said.code
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
	case errors.Is(err, errReaderGone), errors.Is(err, syscall.EPIPE): // the second where SIGPIPE is ignored, and ended nobody
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

// outcome is the exit code of an operation that ended.
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
