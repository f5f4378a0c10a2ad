package tally

import (
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// Health is the condition of a daemon.
type Health struct {
	// Ready reports that the storage is in order and requests are carried out.
	Ready bool
	// Draining reports that no new work is started.
	Draining bool
	// Watch says how changes in jobs/ are detected, and why not by inotify if they are not.
	Watch watch.Mode
	// Live counts the live operations by state.
	Live map[statefs.State]int
	// Counters maps names to counts since the daemon started.
	Counters map[string]uint64
	// FailingOperations lists the operations whose reconcile fails and is retried, oldest failure
	// first, and then the keepers that do not answer, without an ID.
	FailingOperations []FailingOperation
}

// FailingOperation is an operation whose reconcile fails repeatedly, for example because the disk
// is full and its record cannot be written.
type FailingOperation struct {
	ID    statefs.ID `json:"id,omitzero"`
	Error string     `json:"error"`
	Since time.Time  `json:"since"`
	Tries int        `json:"tries"`
}
