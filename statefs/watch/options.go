package watch

import (
	"cmp"
	"time"
)

// The two values of Mode.Name.
const (
	// ModeInotify means that the kernel reports each change.
	ModeInotify = "inotify"
	// ModeScan means that changes may cause no event, so a rescan is reported at each
	// Options.ScanInterval.
	ModeScan = "scan"
)

// Mode is how changes are noticed.
type Mode struct {
	// Name is ModeInotify or ModeScan.
	Name string
	// Reason is why the mode is "scan", or what could not be verified about "inotify". It is a
	// phrase for people and may be empty.
	Reason string
}

// Options configures OpenDir and OpenFiles. The zero value means the defaults.
type Options struct {
	// ScanInterval is the time between two rescans in scan mode; default 1 s.
	ScanInterval time.Duration
	// ProbeTimeout is how long OpenDir waits for the event of its probe file; default 2 s. If
	// events work, it waits only for the event.
	ProbeTimeout time.Duration
}

func (o Options) withDefaults() Options {
	o.ScanInterval = cmp.Or(max(o.ScanInterval, 0), time.Second)
	o.ProbeTimeout = cmp.Or(max(o.ProbeTimeout, 0), 2*time.Second)
	return o
}

// Stats counts the events of a Dir since it was opened.
type Stats struct {
	Events    uint64 `json:"events"`    // events read, including unknown names, without probes
	Unknown   uint64 `json:"unknown"`   // events of names that the key function refused
	Overflows uint64 `json:"overflows"` // times that the kernel's queue overflowed
	Errors    uint64 `json:"errors"`    // other errors of the watcher
	Rescans   uint64 `json:"rescans"`   // rescans returned by Take
}
