package param

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Bytes is an amount of bytes. A job file writes it as a number of bytes or with
// a unit: kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024).
type Bytes int64

var byteUnits = []struct {
	name string
	size int64
}{
	{"TiB", 1 << 40},
	{"TB", 1e12},
	{"GiB", 1 << 30},
	{"GB", 1e9},
	{"MiB", 1 << 20},
	{"MB", 1e6},
	{"KiB", 1 << 10},
	{"kB", 1e3},
	{"B", 1},
}

// String writes the amount with the largest binary unit that divides it:
// "1GiB", "1536KiB", "1000B".
func (b Bytes) String() string {
	for _, u := range byteUnits {
		if strings.HasSuffix(u.name, "iB") && b != 0 && int64(b)%u.size == 0 {
			return strconv.FormatInt(int64(b)/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

var bytesText = regexp.MustCompile(`^([0-9]{1,19}) ?(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)?$`)

// ParseBytes reads an amount of at least one byte as job files write it, and reports false for what is none.
func ParseBytes(s string) (Bytes, bool) {
	m := bytesText.FindStringSubmatch(s)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || n < 1 {
		return 0, false
	}
	for _, u := range byteUnits {
		if u.name == m[2] {
			if n > math.MaxInt64/u.size {
				return 0, false
			}
			return Bytes(n * u.size), true
		}
	}
	return Bytes(n), true
}

var (
	durationText = regexp.MustCompile(`^([0-9]{1,9}(ms|s|m|h|d))+$`)
	durationForm = regexp.MustCompile(`^([0-9]+(ms|s|m|h|d))+$`) // of any length
	durationPart = regexp.MustCompile(`([0-9]+)(ms|s|m|h|d)`)
)

var durationUnits = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
}

// ParseDuration reads a duration as job files write it, such as 90s, 1h30m or 30d: whole numbers, each with a unit. It
// reports false for what is none.
func ParseDuration(s string) (time.Duration, bool) {
	if len(s) > 60 || !durationText.MatchString(s) {
		return 0, false
	}
	var sum time.Duration
	for _, m := range durationPart.FindAllStringSubmatch(s, -1) {
		n, err := strconv.ParseInt(m[1], 10, 64)
		unit := durationUnits[m[2]]
		if err != nil || n > (math.MaxInt64-int64(sum))/int64(unit) {
			return 0, false
		}
		sum += time.Duration(n) * unit
	}
	return sum, true
}

// TooLong reports whether a text that [ParseDuration] refuses is a duration that is too long to represent.
func TooLong(s string) bool {
	_, ok := ParseDuration(s)
	return !ok && durationForm.MatchString(s)
}

// FormatDuration formats a duration as job files write it, without trailing zero parts: 6h and not 6h0m0s.
func FormatDuration(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"0s", "0m"} {
		if n := len(text) - len(zero); n > 0 && text[n:] == zero && (text[n-1] < '0' || text[n-1] > '9') {
			text = text[:n]
		}
	}
	return text
}
