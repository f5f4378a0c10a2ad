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
)

// Error is a refusal of the daemon. See RFC 9457 for the document it is read from.
type Error struct {
	// Status is the HTTP status code.
	Status int
	// Message is one line for people.
	Message string
	// RetryAfter is when the daemon wants to be asked again; 0 when it did not say.
	RetryAfter time.Duration
}

func (e *Error) Error() string { return e.Message }

// maxProblem is how much of an error document is read, in bytes.
const maxProblem = 64 << 10

// refusal reads the answer to a request that was not accepted.
func refusal(resp *http.Response) *Error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil {
		data = nil // the status still says something
	}
	var problem struct {
		Error  string `json:"error"`
		Detail string `json:"detail"`
		Title  string `json:"title"`
	}
	if json.Unmarshal(data, &problem) != nil {
		problem.Title, _, _ = strings.Cut(strings.TrimSpace(string(data)), "\n")
	}
	fallback := fmt.Sprintf("the daemon answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16)
	if err != nil {
		seconds = 0 // none, or a date, which no daemon sends
	}
	return &Error{
		Status: resp.StatusCode, Message: cmp.Or(problem.Error, problem.Detail, problem.Title, fallback),
		RetryAfter: time.Duration(seconds) * time.Second,
	}
}
