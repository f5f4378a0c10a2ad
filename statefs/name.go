package statefs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

// Name is a parsed file name of jobs/. Exactly one of State and Action is set for a known suffix.
// Both are empty for a name that begins with an ID and has an unknown suffix, such as
// ID.running.bak.
type Name struct {
	ID     ID
	State  State
	Action Action
}

// NameSet is a set of marker and request names of an operation.
type NameSet uint32

const (
	// AllNames is every marker and every request.
	AllNames NameSet = 1<<(len(liveStates)+len(requests)) - 1
	// AllMarkers is every marker.
	AllMarkers NameSet = 1<<len(liveStates) - 1
)

// nameKinds are the kinds of names of an operation, in the order of the bits of a NameSet.
var nameKinds = func() (kinds []nameKind) {
	for _, state := range liveStates {
		kinds = append(kinds, nameKind{Name{State: state}, "." + string(state)})
	}
	for _, spec := range requests {
		kinds = append(kinds, nameKind{Name{Action: spec.Action}, "." + string(spec.Action) + requestSuffix})
	}
	return kinds
}()

type nameKind struct {
	Name   // without an ID
	suffix string
}

// MarkerBit returns the set of one marker.
func MarkerBit(state State) NameSet { return Name{State: state}.Bit() }

// Bit returns the set of this name alone, and AllNames for an unknown suffix: the file may have had
// any of the names before.
func (n Name) Bit() NameSet {
	i := slices.IndexFunc(nameKinds, func(k nameKind) bool { return k.State == n.State && k.Action == n.Action })
	if i < 0 {
		return AllNames
	}
	return 1 << i
}

const requestSuffix = "_requested"

// MarkerName returns the name of the marker of an operation in a live state.
func MarkerName(id ID, state State) string { return id.text + "." + string(state) }

// RequestName returns the name of a request file.
func RequestName(id ID, ask Action) string { return id.text + "." + string(ask) + requestSuffix }

// ParseName parses a file name of jobs/. It returns false for a name that belongs to no operation;
// such a file is never touched. Only exact suffixes are known: a temporary name such as
// ID.running12345 is not a marker.
func ParseName(name string) (Name, bool) {
	head, _, found := strings.Cut(name, ".")
	id, err := ParseID(head)
	if err != nil || !found {
		return Name{}, false
	}
	for _, kind := range nameKinds {
		if kind.suffix == name[len(head):] {
			return Name{ID: id, State: kind.State, Action: kind.Action}, true
		}
	}
	return Name{ID: id}, true
}

// StampFormat is the first line of every state and request file: ISO 8601 with microseconds and offset.
const StampFormat = "2006-01-02T15:04:05.000000-07:00"

// clockSlack is how far the first line of a request may be ahead of its modification time, which
// comes from a coarser clock, perhaps of another machine.
const clockSlack = 2 * time.Second

// Stamp is the content of a state or request file.
type Stamp struct {
	// At is when the file was created: its first line, or its modification time if that line holds
	// no time.
	At time.Time
	// Args is the JSON object on the second line of a request, nil if there is none.
	Args json.RawMessage

	// Malformed means that the file contains something other than a time and one JSON object. A
	// request without arguments is still valid: its name is enough.
	Malformed bool

	// futureAt is the time of a request that is in the future; zero for all others.
	futureAt time.Time
}

// Compare orders two requests by time. Requests of the future all count as made now but keep their
// own order: the clock may have been set back after both were made.
func (s Stamp) Compare(other Stamp) int {
	if !s.futureAt.IsZero() && !other.futureAt.IsZero() {
		return s.futureAt.Compare(other.futureAt)
	}
	return s.At.Compare(other.At)
}

// formatStamp returns the content of a state or request file.
func formatStamp(at time.Time, args json.RawMessage) []byte {
	out := append([]byte(at.Format(StampFormat)), '\n')
	if len(args) > 0 {
		out = append(append(out, args...), '\n')
	}
	return out
}

// parseStamp parses the content of a state or request file whose modification time is modified. It
// never fails: without a time in the file, the modification time counts, because `echo >
// ID.pause_requested` must work like `touch`.
func parseStamp(content []byte, modified time.Time) Stamp {
	stamp := Stamp{At: modified}
	first, rest, _ := bytes.Cut(content, []byte("\n"))
	if at, err := time.Parse(time.RFC3339Nano, string(bytes.TrimSpace(first))); err == nil {
		stamp.At, content = at, rest
	}
	content = bytes.TrimSpace(content)
	line, _, _ := bytes.Cut(content, []byte("\n"))
	for _, text := range [][]byte{content, bytes.TrimSpace(line)} {
		// the object may span several lines; text after it is ignored
		var args bytes.Buffer
		if len(text) > 0 && text[0] == '{' && json.Compact(&args, text) == nil {
			stamp.Args = args.Bytes()
			return stamp
		}
	}
	stamp.Malformed = len(content) > 0
	return stamp
}

// lastRequested returns the stamp with the time of the last request: the later of the first line
// and the modification time, so that a `touch` of a pending request repeats it. A first line in the
// future would win over every request until then, so the modification time counts instead; a
// modification time in the future counts as now.
func (s Stamp) lastRequested(modified, now time.Time) Stamp {
	if modified.After(now) {
		s.futureAt = modified
		if s.At.After(modified) && !s.At.After(modified.Add(clockSlack)) {
			s.futureAt = s.At // finer than the clock of the file
		}
		modified = now
	}
	if s.At.Before(modified) || s.At.After(now) || s.At.After(modified.Add(clockSlack)) {
		s.At = modified
	}
	return s
}

// pidNamespace returns the PID namespace of the program that keeps a marker, according to its
// content; "" if it has none.
func (s Stamp) pidNamespace() string {
	var args struct {
		PIDNamespace string `json:"pid_namespace"`
	}
	if len(s.Args) == 0 || json.Unmarshal(s.Args, &args) != nil {
		return ""
	}
	return args.PIDNamespace
}
