package statefs

import (
	"slices"
	"strings"
)

// Name is what a file name in jobs/ says. Exactly one of State and Ask is set for a name with a meaning; both are empty for a
// name that begins with an ID and ends in something unknown, such as ID.running.bak.
type Name struct {
	ID    ID
	State State
	Ask   Ask
}

// Names is a set of the markers and requests that an operation may have.
type Names uint32

const (
	// AllNames is every marker and every request.
	AllNames   Names = 1<<17 - 1
	allMarkers Names = 1<<8 - 1
)

// NameOf is the set of one marker.
func NameOf(state State) Names {
	if i := slices.Index(liveStates, state); i >= 0 {
		return 1 << i
	}
	return AllNames
}

// Bit is the set of a name alone, and all names for one without a meaning: it may have been any of them.
func (n Name) Bit() Names {
	if n.State != "" {
		return NameOf(n.State)
	}
	if i := slices.Index(asks, n.Ask); i >= 0 {
		return 1 << (len(liveStates) + i)
	}
	return AllNames
}

const requestSuffix = "_requested"

// MarkerName returns the name of the marker of an operation in a live state.
func MarkerName(id ID, state State) string { return id.text + "." + string(state) }

// RequestName returns the name of a request file.
func RequestName(id ID, ask Ask) string { return id.text + "." + string(ask) + requestSuffix }

// ParseName reads a file name of jobs/. It reports false for a name that belongs to no operation; such a file is never touched.
// Whole names count: a temporary name such as ID.running12345 is no marker.
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
		for _, known := range asks {
			if Ask(ask) == known {
				return Name{ID: id, Ask: known}, true
			}
		}
	}
	return Name{ID: id}, true
}

// OwnerOf returns the ID that a file name in jobs/ begins with; it is the key under which events are gathered.
func OwnerOf(name string) (ID, bool) {
	parsed, ok := ParseName(name)
	return parsed.ID, ok
}
