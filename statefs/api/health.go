package api

import (
	"encoding/json"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Health is the condition of a daemon, its answer to /readyz.
type Health struct {
	// Counters are named counters since the start of the daemon.
	Counters map[string]uint64 `json:"counters"`
	// Degraded describes in sentences what needs attention: targets that are down for long, deliveries that wait for a
	// person.
	Degraded []string `json:"degraded"`
	// Draining reports that the daemon starts no more work.
	Draining   bool               `json:"draining"`
	Durability statefs.Durability `json:"durability"`
	// Full is why the storage takes no submits, "" while it does.
	Full string `json:"full"`
	// History is why lists of ended operations are refused, "" while they work. The daemon is ready without them.
	History string `json:"history"`
	// Jobs is the number of jobs, Problems a list of the mistakes in their files.
	Jobs int `json:"jobs"`
	// Journal is the condition of the journal; nil if changes are committed without one.
	Journal *JournalStatus `json:"journal,omitempty"`
	// Lanes are the problems of lanes that an administrator should know.
	Lanes []LaneProblem `json:"lanes"`
	// Live counts the live operations by state.
	Live     map[statefs.State]int `json:"live"`
	Outbox   OutboxCounts          `json:"outbox"`
	Problems any                   `json:"problems"`
	// Ready reports that the storage is in order and requests are carried out.
	Ready bool `json:"ready"`
	// Storage is the absolute path of the storage directory as the daemon sees it; "" while it is not ready.
	Storage string `json:"storage"`
	// FailingOperations are the operations whose reconcile fails and is retried, oldest failure first, and then the
	// keepers that do not answer, without an ID.
	FailingOperations []FailingOperation `json:"troubles"`
	Version           string             `json:"version"`
	Watch             WatchMode          `json:"watch"`

	// Raw is the whole JSON object that the daemon sent.
	Raw json.RawMessage `json:"-"`
}

// FailingOperation is an operation whose reconcile fails repeatedly, for example because the disk is full and its
// record cannot be written.
type FailingOperation struct {
	ID    statefs.ID `json:"id,omitzero"`
	Error string     `json:"error"`
	Since time.Time  `json:"since"`
	Tries int        `json:"tries"`
}

// JournalStatus is the condition of the journal of a daemon.
type JournalStatus struct {
	// Segments is the number of files, and Full how many of them wait for a checkpoint.
	Segments int `json:"segments"`
	Full     int `json:"full"`
	// Behind is how many operations have files that do not have their last change yet.
	Behind int `json:"behind"`
	// Lack is why the journal cannot grow, and Unwritten why the last file of an operation could not be written; ""
	// while all works. Submits are refused until it does.
	Lack      string `json:"lack,omitempty"`
	Unwritten string `json:"unwritten,omitempty"`
}

// LaneProblem is a file of lanes/ that cannot be obeyed, or a Breaker that has paused its lane.
type LaneProblem struct {
	// Breaker is open or trial.
	Breaker string `json:"breaker,omitempty"`
	Error   string `json:"error"`
	File    string `json:"file,omitempty"`
	// Lane is "" for a file that belongs to none.
	Lane string `json:"lane"`
}

// OutboxCounts counts the deliveries that are not done.
type OutboxCounts struct {
	FailedManual int `json:"failed_manual"`
	// OldestAt is the time of the oldest pending one, nil when there is none.
	OldestAt *time.Time `json:"oldest_at"`
	Pending  int        `json:"pending"`
}

// WatchMode is how changes in jobs/ are detected: inotify or scan.
type WatchMode struct {
	Name string `json:"name"`
	// Reason is why it is scan, or what could not be verified about inotify.
	Reason string `json:"reason,omitempty"`
}
