package work

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestAskedWaits(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		`90`: 90 * time.Second, `0.5`: 500 * time.Millisecond, `"90"`: 90 * time.Second, `"1h30m"`: 90 * time.Minute, `0`: 1,
		`"2026-01-02T03:05:05Z"`: time.Minute, `"2026-01-02T04:05:05+01:00"`: time.Minute, `"2020-01-01T00:00:00Z"`: 1,
	} {
		if got, err := parseRetryAfter(json.RawMessage(text), now); err != nil || got != want {
			t.Errorf("%s is a wait of %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{
		`-1`, `"-5s"`, `"soon"`, `null`, `true`, `{}`, `[5]`, `1e300`, `"NaN"`, `"Inf"`,
		`"2099-01-01T00:00:00Z"`, `"400d"`, `""`,
	} {
		if got, err := parseRetryAfter(json.RawMessage(text), now); err == nil {
			t.Errorf("%s is accepted as %s", text, got)
		}
	}
	if _, err := parseRetryAfter(json.RawMessage(`"99999999h"`), now); err == nil ||
		!strings.Contains(err.Error(), "is more than a year away") {
		t.Errorf("a long wait: %v", err)
	}
	// null sets no time and is valid.
	r := &Run{}
	if rest := r.takeRetryAfter([]field{{retryMember, json.RawMessage("null")}, member("n", 1)}); len(rest) != 1 ||
		r.outcome.retryAfter != 0 {
		t.Errorf("null leaves %v and asks for %s", rest, r.outcome.retryAfter)
	}
}
