package statefs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrBadID is wrapped by every error about text that is not an operation ID.
var ErrBadID = errors.New("not an operation ID")

// The grammar of an ID, {endpoint_name}_{YYYY-MM-DD}_{HH-MM-SS}_p{PID}_r{N}. It contains no dot and
// no slash, so an ID joined to a folder stays inside, and a file name can be split at its first
// dot.
const (
	idTime            = "2006-01-02_15-04-05"
	maxEndpointLength = 63 // bytes of an endpoint name: small letters, digits, - and _; neither of these first
	maxPIDDigits      = 10 // digits
	maxSequenceDigits = 15 // digits
)

// hasGrammar reports whether text has the form of an ID; it does not check the date. It runs for
// each name in jobs/ and each record, and takes a hundredth of the time of a regular expression.
func hasGrammar(text string) bool {
	r := strings.LastIndex(text, "_r")
	if r < 0 || !isDigits(text[r+2:], maxSequenceDigits) {
		return false
	}
	p := strings.LastIndex(text[:r], "_p")
	if p < 0 || !isDigits(text[p+2:r], maxPIDDigits) {
		return false
	}
	end := p - len("_"+idTime)
	if end < 1 || text[end] != '_' || !isEndpoint(text[:end]) {
		return false
	}
	for i, c := range []byte(text[end+1 : p]) {
		if want := idTime[i]; c != want && (want < '0' || want > '9' || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

func isDigits(text string, most int) bool {
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(text) >= 1 && len(text) <= most
}

func isEndpoint(text string) bool {
	for i, c := range []byte(text) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (i == 0 || c != '-' && c != '_') {
			return false
		}
	}
	return len(text) >= 1 && len(text) <= maxEndpointLength
}

// ID names one operation: {endpoint_name}_{YYYY-MM-DD}_{HH-MM-SS}_p{PID}_r{N}. The time is local
// time at submit and is for people; only N makes the ID unique. The zero value is no ID and has
// empty parts. An ID is comparable. Only ParseID, MakeID and decoding create one, so every ID has
// the grammar and is safe as a file name.
type ID struct{ text string }

// ParseID parses an ID. The error wraps ErrBadID.
func ParseID(text string) (ID, error) {
	// The longest ID has 63+1+19+12+17 bytes. The length is checked first so that long hostile text
	// costs nothing.
	if len(text) > 128 || !hasGrammar(text) {
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

// MakeID builds the ID of operation number seq of the given endpoint name. It fails if a part does
// not fit the grammar.
func MakeID(endpoint string, at time.Time, pid int, seq uint64) (ID, error) {
	if !isEndpoint(endpoint) {
		return ID{}, fmt.Errorf("endpoint name %q: %w", shorten(endpoint), ErrBadID)
	}
	return ParseID(fmt.Sprintf("%s_%s_p%d_r%d", endpoint, at.Format(idTime), pid, seq))
}

// String returns the text of the ID, "" for the zero value.
func (id ID) String() string { return id.text }

// Part returns a name for a part of the operation that equals no other ID. It is for use in memory
// only: no file has it, and it cannot be parsed.
func (id ID) Part(name string) ID { return ID{text: id.text + "/" + name} }

// Whole returns the operation of a part; for an ID that is not a part, the ID itself.
func (id ID) Whole() ID {
	text, _, _ := strings.Cut(id.text, "/")
	return ID{text: text}
}

// IsZero reports whether id is the zero value.
func (id ID) IsZero() bool { return id.text == "" }

// Endpoint returns the endpoint name, {group}-{job}.
func (id ID) Endpoint() string {
	if id.IsZero() {
		return ""
	}
	end, _, _ := id.splitPoints()
	return id.text[:end]
}

// Day returns the date in the ID, which is the name of the operation's folder in operations/.
func (id ID) Day() string {
	day, _, _ := strings.Cut(id.stamp(), "_")
	return day
}

// Time returns the local time in the ID, to the second, interpreted in location loc.
func (id ID) Time(loc *time.Location) time.Time {
	at, _ := time.ParseInLocation(idTime, id.stamp(), loc)
	return at
}

// PID returns the process ID in the ID: of the daemon that created it, or of the program that owns
// a foreign operation.
func (id ID) PID() int {
	if id.IsZero() {
		return 0
	}
	_, p, r := id.splitPoints()
	pid, _ := strconv.Atoi(id.text[p+2 : r])
	return pid
}

// Sequence returns N, which the storage gives out only once.
func (id ID) Sequence() uint64 {
	if id.IsZero() {
		return 0
	}
	_, _, r := id.splitPoints()
	n, _ := strconv.ParseUint(id.text[r+2:], 10, 64)
	return n
}

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.text), nil }

// UnmarshalText implements encoding.TextUnmarshaler; it rejects text that is not an ID.
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
	end, p, _ := id.splitPoints()
	return id.text[end+1 : p]
}

// splitPoints returns where the endpoint name ends and where "_p" and "_r" begin. It searches from
// the end, because an endpoint name may contain them.
func (id ID) splitPoints() (end, p, r int) {
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
