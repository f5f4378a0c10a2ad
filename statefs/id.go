package statefs

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ErrBadID is wrapped by every error about text that is not an operation ID.
var ErrBadID = errors.New("not an operation ID")

// idPattern is the whole grammar. It holds no dot and no slash, so an ID can be joined to a folder without leaving it and a
// file name can be split at its first dot.
var idPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}_\d{4}-\d{2}-\d{2}_\d{2}-\d{2}-\d{2}_p\d{1,10}_r\d{1,15}$`)

// endpointPattern is the grammar of an endpoint name, the first part of an ID.
var endpointPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

const idTime = "2006-01-02_15-04-05"

// ID names one operation: {endpoint_name}_{YYYY-MM-DD}_{HH-MM-SS}_p{PID}_r{N}. The time is local time at submit and is for
// people; uniqueness comes from N alone. The zero value is no ID and has empty parts. An ID is comparable and can only be made by ParseID, MakeID
// and decoding, so one that exists matches the pattern and is safe as a file name.
type ID struct{ text string }

// ParseID returns the ID that text spells. The error wraps ErrBadID.
func ParseID(text string) (ID, error) {
	// The longest ID has 63+1+19+12+17 bytes; the length is checked first so that hostile text costs nothing.
	if len(text) > 128 || !idPattern.MatchString(text) {
		return ID{}, fmt.Errorf("%q: %w", shorten(text), ErrBadID)
	}
	id := ID{text}
	if _, err := time.Parse(idTime, id.stamp()); err != nil {
		return ID{}, fmt.Errorf("%q has no valid date: %w", text, ErrBadID)
	}
	if id.Sequence() == 0 {
		return ID{}, fmt.Errorf("%q has sequence number 0: %w", text, ErrBadID)
	}
	return id, nil
}

// MakeID builds the ID of operation number seq of the given endpoint name. It fails when a part does not fit the grammar.
func MakeID(endpoint string, at time.Time, pid int, seq uint64) (ID, error) {
	if !endpointPattern.MatchString(endpoint) {
		return ID{}, fmt.Errorf("endpoint name %q: %w", shorten(endpoint), ErrBadID)
	}
	return ParseID(fmt.Sprintf("%s_%s_p%d_r%d", endpoint, at.Format(idTime), pid, seq))
}

// String returns the text of the ID, "" for the zero value.
func (id ID) String() string { return id.text }

// IsZero reports whether id is the zero value.
func (id ID) IsZero() bool { return id.text == "" }

// Endpoint returns the endpoint name, {group}-{job}.
func (id ID) Endpoint() string {
	if id.IsZero() {
		return ""
	}
	end, _, _ := id.cuts()
	return id.text[:end]
}

// Day returns the date in the ID, which is the name of its folder below operations/.
func (id ID) Day() string {
	day, _, _ := strings.Cut(id.stamp(), "_")
	return day
}

// Time returns the local time in the ID, to the second, read in location loc.
func (id ID) Time(loc *time.Location) time.Time {
	at, _ := time.ParseInLocation(idTime, id.stamp(), loc)
	return at
}

// PID returns the process ID in the ID: of the daemon that made it, or of the program that owns a foreign operation.
func (id ID) PID() int {
	if id.IsZero() {
		return 0
	}
	_, p, r := id.cuts()
	pid, _ := strconv.Atoi(id.text[p+2 : r])
	return pid
}

// Sequence returns N, which the storage gives out once.
func (id ID) Sequence() uint64 {
	if id.IsZero() {
		return 0
	}
	_, _, r := id.cuts()
	n, _ := strconv.ParseUint(id.text[r+2:], 10, 64)
	return n
}

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.text), nil }

// UnmarshalText implements encoding.TextUnmarshaler; text that is not an ID is refused.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

func (id ID) stamp() string {
	if id.IsZero() {
		return ""
	}
	end, p, _ := id.cuts()
	return id.text[end+1 : p]
}

// cuts returns where the endpoint name ends and where "_p" and "_r" begin. They are searched from the back, because an
// endpoint name may itself contain them.
func (id ID) cuts() (end, p, r int) {
	r = strings.LastIndex(id.text, "_r")
	p = strings.LastIndex(id.text[:r], "_p")
	return p - len("_"+idTime), p, r
}

func shorten(text string) string {
	if len(text) > 128 {
		return text[:125] + "..."
	}
	return text
}
