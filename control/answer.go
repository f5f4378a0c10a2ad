package control

import (
	"io"
	"net/http"
)

// answer is the ResponseWriter of every handler. It remembers whether the status line has left, after which an error can only
// be told by ending the connection.
type answer struct {
	http.ResponseWriter
	started bool
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.started = true
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.started = true
	return a.ResponseWriter.Write(p)
}

// ReadFrom keeps the kernel's copy from file to socket for logs and artifacts.
func (a *answer) ReadFrom(src io.Reader) (int64, error) {
	a.started = true
	return io.Copy(a.ResponseWriter, src)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
