// Package exit has the exit codes, and the errors that lead to them. Only [Code] maps an error to a code.
package exit

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
	Success = 0 // done; the operation ended with result success
	// Failure: the operation ended with result failure; validate: a definition has a mistake; journal check: it is not
	// whole; by a filter: all that matched failed; with --wait: a request did not take effect
	Failure   = 1
	Partial   = 2   // the operation went to its end and some items failed; by a filter: some of what matched failed
	Person    = 3   // run, wait: the operation waits for a person
	Usage     = 64  // the command line, the configuration or a parameter is wrong
	NotFound  = 66  // there is no such operation, job or file
	NoDaemon  = 69  // no daemon answers
	Internal  = 70  // anything else: the message says what
	PortInUse = 71  // serve: another program listens on the address
	InUse     = 73  // serve: another daemon holds the storage
	Temporary = 75  // the outcome is not known: cut off, left running, or refused for now
	Forbidden = 77  // the daemon wants a token, or a file may not be read
	Cancelled = 130 // the operation was cancelled
	// NoReader: the reader of the output is gone; 128 + SIGPIPE, as a shell reports a program that this signal killed
	NoReader = 141
)

// ErrPortInUse means that another program listens on an address.
var ErrPortInUse = errors.New("the address is in use")

// ErrReaderGone ends a command when its output has no reader any more.
var ErrReaderGone = errors.New("the reader of the output has closed it")

// caused is an error with the message of its cause.
type caused struct{ cause error }

func (e *caused) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *caused) Unwrap() error { return e.cause }

// UsageError is a mistake on the command line.
type UsageError struct{ caused }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{caused{fmt.Errorf(format, args...)}}
}

// NotFoundError means that a named object does not exist.
type NotFoundError struct{ caused }

// NotFoundf returns a NotFoundError.
func NotFoundf(format string, args ...any) error {
	return &NotFoundError{caused{fmt.Errorf(format, args...)}}
}

// NoEffectError means that a request with --wait has no effect.
type NoEffectError struct{ caused }

// NoEffect returns a NoEffectError.
func NoEffect(cause error) error { return &NoEffectError{caused{cause}} }

// CodeError carries an exit code; its message has already been printed.
type CodeError struct{ Code int }

// With returns an error that ends the program with a code and without a message.
func With(code int) error { return &CodeError{Code: code} }

func (e *CodeError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// Code maps an error to the exit code. No other function does.
func Code(err error) int {
	if said, ok := errors.AsType[*CodeError](err); ok {
		return said.Code
	}
	refused, isRefused := errors.AsType[*client.Error](err)
	switch {
	case err == nil:
		return Success
	case is[*NoEffectError](err):
		return Failure
	case is[*UsageError](err):
		return Usage
	case is[*NotFoundError](err):
		return NotFound
	case is[*statefs.LockedError](err):
		return InUse
	case errors.Is(err, ErrPortInUse):
		return PortInUse
	case is[*client.TextError](err):
		return Usage
	case isRefused:
		return CodeOfStatus(refused.Status)
	case is[*client.CutError](err):
		return Temporary
	case client.Unreachable(err):
		return NoDaemon
	case errors.Is(err, ErrReaderGone), errors.Is(err, syscall.EPIPE):
		// the second is returned where SIGPIPE is ignored, so that the signal killed no process
		return NoReader
	case errors.Is(err, statefs.ErrNotLive):
		return NotFound
	case errors.Is(err, fs.ErrPermission):
		return Forbidden
	case errors.Is(err, context.DeadlineExceeded):
		return Temporary
	}
	return Internal
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// CodeOfStatus maps the HTTP status of a refusal to a code.
func CodeOfStatus(status int) int {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return Forbidden
	case status == http.StatusNotFound, status == http.StatusGone:
		return NotFound
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
		return Temporary
	case status >= http.StatusBadRequest && status < http.StatusInternalServerError:
		return Usage
	default:
		return Internal
	}
}

// Outcome returns the exit code for the result of an operation.
func Outcome(result statefs.Result) int {
	switch result {
	case statefs.Success:
		return Success
	case statefs.Partial:
		return Partial
	case statefs.CancelledResult:
		return Cancelled
	case statefs.Failure:
		return Failure
	}
	return Failure
}
