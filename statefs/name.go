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

// IDFromName returns the ID that a file name in jobs/ begins with. The watch groups events by it.
func IDFromName(name string) (ID, bool) {
	parsed, ok := ParseName(name)
	return parsed.ID, ok
}
