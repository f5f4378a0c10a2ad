package statefs

import (
	"fmt"
	"path/filepath"
)

// reserveEvents is how many numbers of events are reserved at once: there are several events for each operation, so the one synced
// write that a block costs serves some ten thousand operations.
const reserveEvents = 100_000

// EventsDir is the folder of the event log. It is made by whoever writes there.
func (t *Tree) EventsDir() string { return filepath.Join(t.dir, eventsDir) }

// ReserveEvents reserves a block of numbers for events, which nobody had before and nobody gets again, also after a crash; least is
// the lowest number that will do. It returns the first one and the one behind the last. whole says that the log was closed in order
// when this was last asked for, so that first follows the last event that there was; CloseEvents says so. The block is on the disk,
// whatever the durability is, before it returns.
func (o *Owner) ReserveEvents(least uint64) (first, end uint64, whole bool, err error) {
	err = o.changeStorage(func(info *storageInfo) error {
		whole = info.EventsWhole || info.NextEvent == 0
		first = max(info.NextEvent, least, 1)
		end = first + reserveEvents
		info.NextEvent, info.EventsWhole = end, false
		return nil
	})
	if err != nil {
		return 0, 0, false, fmt.Errorf("reserve numbers of events: %w", err)
	}
	return first, end, whole, nil
}

// CloseEvents says that the event log is whole and on the disk, and that next is the first number that no event has.
func (o *Owner) CloseEvents(next uint64) error {
	err := o.changeStorage(func(info *storageInfo) error {
		info.NextEvent, info.EventsWhole = next, true
		return nil
	})
	if err != nil {
		return fmt.Errorf("note the last event: %w", err)
	}
	return nil
}
