package control

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// submitWait returns how long a submit waits for the end of the operation: the parameter wait, or the preference
// wait=SECONDS of RFC 7240. A submit responds asynchronously anyway; respond-async together with wait means "after that
// time", as in section 4.3. applied is the value of Preference-Applied.
func submitWait(r *http.Request, values url.Values) (wait time.Duration, applied string, err error) {
	if values.Has("wait") {
		wait, err = waitFrom(values.Get("wait"))
		return wait, "", err
	}
	var kept []string
	seen := map[string]bool{}
	for preference := range strings.SplitSeq(strings.Join(r.Header.Values("Prefer"), ","), ",") {
		preference, _, _ = strings.Cut(preference, ";")
		name, value, _ := strings.Cut(preference, "=")
		name = strings.ToLower(strings.TrimSpace(name))
		if seen[name] {
			continue // the first occurrence counts, section 2
		}
		seen[name] = true
		switch name {
		case "respond-async":
			kept = append(kept, name)
		case "wait":
			seconds, err := strconv.Atoi(strings.Trim(strings.TrimSpace(value), `"`))
			if err != nil || seconds < 0 {
				continue // invalid preferences are ignored, section 2
			}
			seconds = min(seconds, int(maxWait/time.Second))
			wait = time.Duration(seconds) * time.Second
			kept = append(kept, "wait="+strconv.Itoa(seconds))
		}
	}
	return wait, strings.Join(kept, ", "), nil
}

// respondsAsync reports whether applied, a result of submitWait, contains respond-async.
func respondsAsync(applied string) bool {
	return slices.ContainsFunc(strings.Split(applied, ", "), func(name string) bool { return name == "respond-async" })
}

const maxRetryAfter = 30 * time.Second

// pollInterval returns when a client should poll an unfinished operation again: the older the operation, the longer it
// is likely to take.
func pollInterval(age time.Duration) time.Duration {
	return min(max((age/10).Truncate(time.Second), time.Second), maxRetryAfter)
}

// setRetryAfter sets Retry-After for an unfinished operation.
func (s *Server) setRetryAfter(w *responseWriter, out operationJSON) {
	if !out.State.Live() || out.Record == nil {
		return
	}
	after := pollInterval(s.tree.Now().Sub(out.CreatedAt))
	w.Header().Set("Retry-After", strconv.Itoa(int(after/time.Second)))
}

// afterWait waits until the operation has ended, waits for a person, or is in one of the given states, at most for wait
// or until the daemon stops, and returns it as it is then. The operation is accepted in any case, so errors are logged
// and the answer is submitted, unchanged.
func (s *Server) afterWait(r *http.Request, submitted operationJSON, wait time.Duration,
	or ...statefs.State,
) operationJSON {
	f := s.hub.follow(submitted.ID, viewEnd)
	defer f.close()
	ctx, stop := context.WithTimeout(r.Context(), wait)
	defer stop()
	err := s.awaitEndOrPerson(ctx, f, or...)
	if err == nil && f.end != nil {
		return s.describeEnd(f.end)
	}
	if err == nil || ctx.Err() != nil {
		var found operationJSON
		if found, err = s.describe(submitted.ID); err == nil {
			return found
		}
	}
	s.log.Warn("waiting for an operation failed", "id", submitted.ID.String(), "error", err)
	return submitted
}
