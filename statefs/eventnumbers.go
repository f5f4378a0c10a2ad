package statefs

import (
	"fmt"
	"path/filepath"
)

// reserveEvents is how many event numbers are reserved at once. An operation has several events, so
// the one synced write per block serves some ten thousand operations.
const reserveEvents = 100_000

// EventsDir returns the folder of the event log. The code that writes the log creates it.
func (t *Tree) EventsDir() string { return filepath.Join(t.dir, eventsDir) }

// ReserveEvents reserves a block of event numbers that were never given out before and never will
// be again, even after a crash. least is a lower bound for the first. It returns the first number
// and the one after the last. whole reports that CloseEvents closed the log after the previous
// reservation, so that first directly follows the last event. The block is on disk when it returns,
// whatever the durability. On a full disk nothing is reserved: the error comes with first, which a
// later call would reserve, and with end equal to it.
func (o *Owner) ReserveEvents(least uint64) (first, end uint64, whole bool, err error) {
	err = o.changeStorage(func(info *storageInfo) error {
		whole = info.EventsComplete || info.NextEvent == 0
		first = max(info.NextEvent, least, 1)
		end = first + reserveEvents
		info.NextEvent, info.EventsComplete = end, false
		return nil
	})
	if err != nil {
		return first, first, whole, fmt.Errorf("reserve numbers of events: %w", err)
	}
	return first, end, whole, nil
}

// CloseEvents records that the event log is complete and on disk, and that next is the first unused
// number.
func (o *Owner) CloseEvents(next uint64) error {
	err := o.changeStorage(func(info *storageInfo) error {
		info.NextEvent, info.EventsComplete = next, true
		return nil
	})
	if err != nil {
		return fmt.Errorf("note the last event: %w", err)
	}
	return nil
}
