package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"time"
)

// ProbePrefix begins the names of the empty probe files that OpenDir creates and removes in the
// watched folder: ".jobdir-probe-PID-N". A leftover file is from a process that was killed at that
// moment, and may be removed. Events of such names are neither counted nor passed to the key
// function.
const ProbePrefix = ".jobdir-probe-"

// maxProbeNames bounds the search for a free name: in containers, where every process may have the
// same PID, leftovers can occupy names.
const maxProbeNames = 1000

var probeNumber atomic.Uint64

// probe creates a file in the folder and waits for its event. Events of other names that arrive
// first go into the set. An error means that no file could be created (a read-only folder, no
// permission, a full disk), which proves nothing about events.
func (d *Dir[K]) probe() (seen bool, err error) {
	name, err := d.createProbe()
	if err != nil {
		return false, err
	}
	// A probe that cannot be removed is harmless: its name is reserved.
	defer func() { _ = d.root.Remove(name) }()

	deadline := time.After(d.options.ProbeTimeout)
	for {
		select {
		case event, ok := <-d.watcher.Events:
			if !ok {
				return false, nil
			}
			if d.receive(event) == name {
				return true, nil
			}
		case fault, ok := <-d.watcher.Errors:
			if !ok {
				return false, nil
			}
			if !d.recordError(fault) {
				// The probe's own event may be lost, but an overflowing queue proves that events
				// arrive.
				return true, nil
			}
		case <-deadline:
			return false, nil
		}
	}
}

func (d *Dir[K]) createProbe() (name string, err error) {
	for range maxProbeNames {
		name = fmt.Sprintf("%s%d-%d", ProbePrefix, os.Getpid(), probeNumber.Add(1))
		var file *os.File
		file, err = d.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			return name, file.Close()
		}
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return "", err
}
