package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Error is a refusal of the daemon, read from a problem document (RFC 9457).
type Error struct {
	// Status is the HTTP status code.
	Status int
	// Message is one line for people.
	Message string
	// RetryAfter is how long to wait before the next try; 0 if the daemon did not say.
	RetryAfter time.Duration
	// State is the state of the operation that the daemon refused to act on, if the refusal has it: with status 404
	// the operation has ended.
	State statefs.State
}

func (e *Error) Error() string { return e.Message }

// maxProblem bounds how much of a problem document is read, in bytes.
const maxProblem = 64 << 10

// refusal reads the response to a request that the daemon refused.
func refusal(resp *http.Response) *Error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil {
		data = nil // the status is still useful
	}
	var problem struct {
		Error  string `json:"error"`
		Detail string `json:"detail"`
		Title  string `json:"title"`

		State statefs.State `json:"state"`
	}
	if json.Unmarshal(data, &problem) != nil {
		problem.Title, _, _ = strings.Cut(strings.TrimSpace(string(data)), "\n")
	}
	fallback := fmt.Sprintf("the daemon answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16)
	if err != nil {
		seconds = 0 // missing, or a date, which no daemon sends
	}
	return &Error{
		Status: resp.StatusCode, Message: cmp.Or(problem.Error, problem.Detail, problem.Title, fallback),
		RetryAfter: time.Duration(seconds) * time.Second, State: problem.State,
	}
}
