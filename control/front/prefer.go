package front

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// PreferredWait returns how long a submit waits for the end of the operation: the parameter wait, or the preference
// wait=SECONDS of RFC 7240. A submit responds asynchronously anyway; respond-async together with wait means "after that
// time", as in section 4.3. applied is the value of Preference-Applied.
func (r *Request) PreferredWait(q *Query) (wait time.Duration, applied string) {
	if q.Has("wait") {
		return q.Wait(), ""
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
	return wait, strings.Join(kept, ", ")
}

// RespondsAsync reports whether applied, a result of PreferredWait, contains respond-async.
func RespondsAsync(applied string) bool {
	return slices.Contains(strings.Split(applied, ", "), "respond-async")
}

const maxRetryAfter = 30 * time.Second

// PollInterval returns when a client should poll an unfinished operation again: the older the operation, the longer it
// is likely to take.
func PollInterval(age time.Duration) time.Duration {
	return min(max((age/10).Truncate(time.Second), time.Second), maxRetryAfter)
}
