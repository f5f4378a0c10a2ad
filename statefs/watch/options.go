package watch

import (
	"cmp"
	"time"
)

// The two values of Mode.Name.
const (
	// ModeInotify means that each change is announced by the kernel (by kqueue
	// on macOS).
	ModeInotify = "inotify"
	// ModeScan means that changes may go unannounced, so a look at everything
	// is asked for at each Options.ScanInterval.
	ModeScan = "scan"
)

// Mode says how changes are noticed.
type Mode struct {
	// Name is ModeInotify or ModeScan.
	Name string `json:"name"`
	// Reason says why the mode is "scan", or what could not be verified about
	// "inotify". It is a phrase for people; empty when there is nothing to say.
	Reason string `json:"reason,omitempty"`
}

// Options of OpenDir and OpenFiles. The zero value means the defaults.
type Options struct {
	// ScanInterval is the time between two looks in scan mode; default 1 s.
	ScanInterval time.Duration
	// ProbeTimeout is how long OpenDir waits for the event of its probe file;
	// default 2 s. Nothing waits that long where events work.
	ProbeTimeout time.Duration
}

func (o Options) withDefaults() Options {
	o.ScanInterval = cmp.Or(max(o.ScanInterval, 0), time.Second)
	o.ProbeTimeout = cmp.Or(max(o.ProbeTimeout, 0), 2*time.Second)
	return o
}

// Stats counts what a Dir has seen since it was opened.
type Stats struct {
	Events    uint64 `json:"events"`    // events read, those of unknown names included, probes not
	Unknown   uint64 `json:"unknown"`   // events of names that the key function refused
	Overflows uint64 `json:"overflows"` // times the kernel's queue overflowed
	Errors    uint64 `json:"errors"`    // other errors of the watcher
	Rescans   uint64 `json:"rescans"`   // rescans handed out by Take
}

// FilesStats is what a Files holds and has done since it was opened.
type FilesStats struct {
	Paths       int    `json:"paths"`       // files that are followed now
	Subscribers int    `json:"subscribers"` // subscriptions not yet cancelled
	Polled      int    `json:"polled"`      // files of Paths whose subscribers are woken by the tick
	Events      uint64 `json:"events"`      // events read
	Overflows   uint64 `json:"overflows"`   // times the kernel's queue overflowed
	Errors      uint64 `json:"errors"`      // other errors of the watcher
}
