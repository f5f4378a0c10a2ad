package control

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// submitWait returns how long a submit is to wait for the end of the operation: the parameter wait, or the preference wait=SECONDS of
// RFC 7240. respond-async, which is what a submit does anyhow, wins over a wait beside it. applied is what the answer repeats.
func submitWait(r *http.Request, values url.Values) (wait time.Duration, applied string, err error) {
	if values.Has("wait") {
		wait, err = waitFrom(values.Get("wait"))
		return wait, "", err
	}
	for _, header := range r.Header.Values("Prefer") {
		for preference := range strings.SplitSeq(header, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(preference), "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "respond-async":
				return 0, "respond-async", nil
			case "wait":
				seconds, err := strconv.Atoi(strings.Trim(strings.TrimSpace(value), `"`))
				if err != nil || seconds < 0 {
					continue // a preference that is not understood is ignored, RFC 7240 section 2
				}
				wait = min(time.Duration(seconds)*time.Second, longestWait)
				applied = "wait=" + strconv.Itoa(seconds)
			}
		}
	}
	return wait, applied, nil
}

// awaitEnd waits until an operation has ended, at most for a time. That it has not is no error.
func (s *Server) awaitEnd(r *http.Request, id statefs.ID, wait time.Duration) error {
	f := s.hub.follow(id, viewEnd)
	defer f.close()
	ctx, stop := context.WithTimeout(r.Context(), wait)
	defer stop()
	_, err := stream.WaitFooter(ctx, f)
	if ctx.Err() != nil {
		return nil // the time is over or the daemon stops: the answer says in which state it is
	}
	return err
}
