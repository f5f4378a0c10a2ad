package statefs

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

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
