package commit

import (
	"slices"
	"time"
)

// Marker is a marker that a start finds.
type Marker struct {
	State string
	// Changed is when it was made or renamed last, by the clock of the machine.
	Changed time.Time
}

// Known is what the journal knows of an operation.
type Known struct {
	// State is that of its last line; "" if it has ended.
	State string
	// At is when that line was written.
	At time.Time
	// Earlier are the other states that it had before a line whose marker may not have reached the folder.
	Earlier []string
	// Late means that there is such a line.
	Late bool
	// Copied means that the storage is a copy: its folder may show any moment of the past.
	Copied bool
}

// Answer is what a start does about the marker of an operation.
type Answer string

// The answers.
const (
	// Leave lets what is in the folder count: it is right, or a person has changed it.
	Leave Answer = "leave"
	// Make makes the marker, which is missing.
	Make Answer = "make"
	// Rename renames the marker that is there.
	Rename Answer = "rename"
)

// Judge compares the markers that a start finds with the journal. The folder is behind the journal only in what the
// last lines say, and only if the daemon, or the machine, died before it was written. Whatever else differs was changed
// by a person: that is decided as it is while a daemon runs.
func Judge(k Known, markers []Marker) Answer {
	switch {
	case !k.Late || k.State == "": // without a state its record tells that it has ended
		return Leave
	case len(markers) == 0:
		return Make // an answered operation is not cancelled on the word of a folder that may be behind
	case len(markers) > 1 || markers[0].State == k.State:
		return Leave
	case k.Copied:
		return Rename
	case slices.Contains(k.Earlier, markers[0].State) && !markers[0].Changed.After(k.At):
		return Rename
	}
	return Leave
}
