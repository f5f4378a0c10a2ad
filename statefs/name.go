package statefs

import (
	"slices"
	"strings"
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

// MarkerBit returns the set of one marker.
func MarkerBit(state State) NameSet {
	if i := slices.Index(liveStates[:], state); i >= 0 {
		return 1 << i
	}
	return AllNames
}

// Bit returns the set of this name alone, and AllNames for an unknown suffix: the file may have had
// any of the names before.
func (n Name) Bit() NameSet {
	if n.State != "" {
		return MarkerBit(n.State)
	}
	if i := n.Action.index(); i >= 0 {
		return 1 << (len(liveStates) + i)
	}
	return AllNames
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
	head, suffix, found := strings.Cut(name, ".")
	if !found {
		return Name{}, false
	}
	id, err := ParseID(head)
	if err != nil {
		return Name{}, false
	}
	if State(suffix).Live() {
		return Name{ID: id, State: State(suffix)}, true
	}
	if ask, ok := strings.CutSuffix(suffix, requestSuffix); ok {
		if i := Action(ask).index(); i >= 0 {
			return Name{ID: id, Action: requests[i].Action}, true
		}
	}
	return Name{ID: id}, true
}

// IDFromName returns the ID that a file name in jobs/ begins with. The watch groups events by it.
func IDFromName(name string) (ID, bool) {
	parsed, ok := ParseName(name)
	return parsed.ID, ok
}
