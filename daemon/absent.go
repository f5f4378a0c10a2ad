package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// secondLook is how long a marker must be missing, with no sign of it, before its absence is believed. A marker that is renamed
// by hand is missing for microseconds; a folder that is being removed is gone as a whole by then.
const secondLook = 250 * time.Millisecond

// errEmptied says that jobs/ lost all of its markers at once.
var errEmptied = errors.New("all markers of live operations are gone at once")

// missing handles an operation whose marker was not found. Removing a marker by hand cancels the operation, but absence is never
// taken from one look: only after a while in which nothing was heard of the operation, with the folder still the same, with the
// marker under no other name, and with other markers still there.
func (d *Daemon) missing(op *operation) error {
	if op.displaced.Load() {
		return d.restoreDisplaced(op)
	}
	events := op.events.Load()
	if op.absence.since.IsZero() || op.absence.events != events || d.isPending(op.id()) {
		op.absence = absence{since: time.Now(), events: events}
		d.lookAfter(op.id(), secondLook)
		return nil
	}
	if time.Since(op.absence.since) < secondLook {
		return nil // its timer runs
	}
	if err := d.dir.Check(); err != nil {
		return err
	}
	// State asks for every name until the folder stood still meanwhile, which is what helps where no events are to be had.
	_, err := d.owner.State(op.id())
	if err == nil {
		return errMoved
	}
	if !errors.Is(err, statefs.ErrNotLive) {
		return err
	}
	return d.absent(op)
}

// absent acts on a marker that is really gone from its names.
func (d *Daemon) absent(op *operation) error {
	listing, err := d.owner.List()
	if err != nil {
		return err
	}
	file, found, err := d.findMarker(op, listing)
	if err != nil {
		return err
	}
	if found && d.heldByAnother(op, file) {
		return d.restoreDisplaced(op)
	}
	if found {
		return d.putBack(op, file)
	}
	if err := d.emptied(listing); err != nil {
		return err
	}
	d.logger.Warn("marker removed by hand: the operation is cancelled", "id", op.id(), "state", op.state)
	// It is made again until the work has ended: ls(1) lists what is active, and whoever follows the operation sees it end.
	if err := d.restore(op); err != nil {
		return err
	}
	d.sayCancel(op)
	return d.endBy(op, d.askForCancel(op), statefs.CauseMarkerMissing)
}

// askForCancel makes the request that the removal of a marker stands for and takes it in hand: the marker is back until the work has
// ended, so without it the next daemon would not know of the cancel. When it cannot be made the cancel is carried out all the same.
func (d *Daemon) askForCancel(op *operation) statefs.Taken {
	taken := statefs.Taken{ID: op.id(), Ask: statefs.Cancel}
	err := d.owner.Request(context.Background(), op.id(), statefs.Cancel, nil)
	if err == nil {
		var t statefs.Taken
		var ok bool
		if t, ok, err = d.owner.Take(op.id(), statefs.Cancel); ok {
			return t
		}
	}
	if err != nil {
		d.logger.Warn("the cancel is not on disk, and is lost if the daemon ends before the work has", "id", op.id(), "error", err)
	}
	return taken
}

func (d *Daemon) restore(op *operation) error {
	if err := d.owner.Restore(op.id(), op.state, op.rec.CreatedAt); err != nil {
		return err
	}
	marker, _, err := d.owner.Identify(statefs.MarkerName(op.id(), op.state))
	if err != nil {
		return err
	}
	op.marker.Store(&marker)
	op.absence = absence{}
	return nil
}

// findMarker searches the folder for the marker under another name: one that begins with the ID, or any that is the same file.
func (d *Daemon) findMarker(op *operation, listing statefs.Listing) (string, bool, error) {
	for _, e := range listing.Unknown {
		if e.ID == op.id() {
			return e.File, true, nil
		}
	}
	folder, err := os.Open(d.owner.JobsDir())
	if err != nil {
		return "", false, err
	}
	defer func() { _ = folder.Close() }() // opened for reading
	entries, err := folder.ReadDir(-1)
	if err != nil {
		return "", false, err
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() {
			continue
		}
		if file, _, err := d.owner.Identify(entry.Name()); err == nil && file.Same(*op.marker.Load()) {
			return entry.Name(), true, nil
		}
	}
	return "", false, nil
}

func (d *Daemon) putBack(op *operation, file string) error {
	d.counters.putBack.Add(1)
	d.logger.Warn("marker put back: its new name means nothing", "id", op.id(), "name", file, "state", op.state)
	op.absence = absence{}
	err := d.owner.PutBack(file, op.id(), op.state)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return errMoved
	}
	return err
}

// emptied reports an error when none of several live operations has a marker left: nobody cancels everything by removing files
// one by one, but a volume that is taken away and a careless rm look like that.
func (d *Daemon) emptied(listing statefs.Listing) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if len(d.ops) < 2 {
		return nil
	}
	for _, e := range slices.Concat(listing.Markers, listing.Unknown) { // a name with a senseless ending is there, and is put back
		if d.ops[e.ID] != nil {
			return nil
		}
	}
	return fmt.Errorf("%s: %w (%d of them): nothing is cancelled and the daemon stops; bring the folder back, or start the daemon again to have the markers restored from the records. To cancel operations, create ID.cancel_requested",
		d.owner.JobsDir(), errEmptied, len(d.ops))
}
