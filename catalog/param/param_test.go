package param

import (
	"regexp"
	"testing"
	"time"
)

func TestPatternIsBoundedToTheWholeValue(t *testing.T) {
	t.Parallel()
	p := Param{Type: StringType}
	if err := p.SetPattern(regexp.MustCompile("a|b")); err != nil {
		t.Fatal(err)
	}
	for text, fits := range map[string]bool{"a": true, "b": true, "ab": false} {
		if v, _ := ParseText(StringType, text); (p.Check(v) == "") != fits {
			t.Errorf("%q: %q", text, p.Check(v))
		}
	}
}

func TestQuantities(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1": "1B", "1024": "1KiB", "1GiB": "1GiB", "1500 kB": "1500000B",
		"1536KiB": "1536KiB", "2TB": "1953125000KiB",
	} {
		if b, ok := ParseBytes(text); !ok || b.String() != want {
			t.Errorf("%s is %s", text, b)
		}
	}
	for _, text := range []string{"", "0", "-1", "1K", "1gib", "1.5GiB", "9223372036854775807kB", "99999999999999999999"} {
		if b, ok := ParseBytes(text); ok {
			t.Errorf("%q is accepted as %s", text, b)
		}
	}
	for text, want := range map[string]time.Duration{
		"10s": 10 * time.Second, "1m30s": 90 * time.Second,
		"2d": 48 * time.Hour, "500ms": 500 * time.Millisecond,
	} {
		if d, ok := ParseDuration(text); !ok || d != want {
			t.Errorf("%s is %s", text, d)
		}
	}
	for _, text := range []string{"", "10", "s", "1.5s", "-1s", "999999999d", "1w"} {
		if d, ok := ParseDuration(text); ok {
			t.Errorf("%q is accepted as %s", text, d)
		}
	}
}
