package statefs

import "strings"

// Name is what a file name in jobs/ says. Exactly one of State and Ask is set for a name with a meaning; both are empty for a
// name that begins with an ID and ends in something unknown, such as ID.running.bak.
type Name struct {
	ID    ID
	State State
	Ask   Ask
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
