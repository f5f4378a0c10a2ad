package front

import (
	"testing"
	"time"
)

func TestCut(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "short": "short", "tenletters": "tenletters",
		"elevenchars": "elevenc…", "füüünffff0": "füüü…", "abcdefgüx": "abcdefgüx",
	} {
		if got := cut(text, 10); got != want || len(got) > 10 {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestClientsPollOldOperationsLess(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]time.Duration{
		-time.Hour: time.Second, 0: time.Second, 15 * time.Second: time.Second, 25 * time.Second: 2 * time.Second,
		time.Hour: 30 * time.Second,
	} {
		if got := PollInterval(age); got != want {
			t.Errorf("after %s: %s, want %s", age, got, want)
		}
	}
}
