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

// submitWait returns how long a submit is to wait for the end of the operation: the parameter wait, or the preference wait=SECONDS of
// RFC 7240. respond-async is what a submit does anyhow; beside a wait it means "after that time", as in section 4.3. applied is what
// the answer repeats.
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
			continue // the first one counts, section 2
		}
		seen[name] = true
		switch name {
		case "respond-async":
			kept = append(kept, name)
		case "wait":
			seconds, err := strconv.Atoi(strings.Trim(strings.TrimSpace(value), `"`))
			if err != nil || seconds < 0 {
				continue // what is not understood is ignored, section 2
			}
			seconds = min(seconds, int(longestWait/time.Second))
			wait = time.Duration(seconds) * time.Second
			kept = append(kept, "wait="+strconv.Itoa(seconds))
		}
	}
	return wait, strings.Join(kept, ", "), nil
}

// respondsAsync tells whether the preference respond-async is given, as submitWait reads it.
func respondsAsync(applied string) bool {
	return slices.ContainsFunc(strings.Split(applied, ", "), func(name string) bool { return name == "respond-async" })
}

const longestAskAgain = 30 * time.Second

// askAgainAfter is when to ask again for an operation that has not ended: the longer it has been there, the longer it is likely to be.
func askAgainAfter(age time.Duration) time.Duration {
	return min(max((age/10).Truncate(time.Second), time.Second), longestAskAgain)
}

// askAgain says when to ask again, for an operation that has not ended.
func (s *Server) askAgain(w *answer, out operationJSON) {
	if !out.State.Live() || out.Record == nil {
		return
	}
	after := askAgainAfter(s.tree.Now().Sub(out.CreatedAt))
	w.Header().Set("Retry-After", strconv.Itoa(int(after/time.Second)))
}

// afterWait returns the operation as it is when it has ended, waits for a person, or is in one of the given states, at the latest after a time or when the daemon stops. The operation is
// accepted whatever comes of the waiting, so what goes wrong is logged and the answer is what was known before.
func (s *Server) afterWait(r *http.Request, submitted operationJSON, wait time.Duration, or ...statefs.State) operationJSON {
	f := s.hub.follow(submitted.ID, viewEnd)
	defer f.close()
	ctx, stop := context.WithTimeout(r.Context(), wait)
	defer stop()
	err := s.awaitRest(ctx, f, or...)
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
