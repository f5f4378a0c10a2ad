package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/live"
	"github.com/jobdir/jobdir/statefs"
)

// missingMarkerGrace is how long a marker must be missing, without any event of its operation,
// before its absence is believed. A rename by a person leaves it missing for microseconds. A folder
// that is being removed is gone completely by then.
const missingMarkerGrace = 250 * time.Millisecond

// confirmMissingMarker handles an operation whose marker was not found. Removing a marker cancels
// the operation, but a single observation is never enough. The marker must be missing for
// missingMarkerGrace without an event of the operation, the folder must be the same one, and the
// marker must exist under no other name.
func (d *Daemon) confirmMissingMarker(op *operation) error {
	if op.misplaced.Load() {
		return d.restoreMisplaced(op)
	}
	events := op.events.Load()
	if op.missing.since.IsZero() || op.missing.events != events || d.hasPendingEvent(op.id()) {
		op.missing = missingMarker{since: time.Now(), events: events}
		d.enqueueAfter(op.id(), missingMarkerGrace)
		return nil
	}
	if time.Since(op.missing.since) < missingMarkerGrace {
		return nil // its timer is running
	}
	if err := d.dir.Check(); err != nil {
		return err
	}
	// State observes again until jobs/ does not change during it, which also works without events.
	_, err := d.owner.State(op.id())
	if err == nil {
		return errMoved
	}
	if !errors.Is(err, statefs.ErrNotLive) {
		return err
	}
	return d.handleMissingMarker(op)
}

// handleMissingMarker acts on a marker that is confirmed missing from its names.
func (d *Daemon) handleMissingMarker(op *operation) error {
	listing, err := d.owner.List()
	if err != nil {
		return err
	}
	file, found, err := d.findMarker(op, listing)
	if err != nil {
		return err
	}
	if found && d.belongsToAnother(op, file) {
		return d.restoreMisplaced(op)
	}
	if found {
		return d.undoRename(op, file)
	}
	d.logger.Warn("marker removed manually, cancelling the operation", "id", op.id(), "state", op.state)
	// The marker is recreated until the work has ended, so that ls(1) lists the active operation
	// and its followers see it end.
	if err := d.restoreMarker(op); err != nil {
		return err
	}
	d.logLine(op, decide.CancelLine(op.state))
	return d.beginCancel(op, d.requestCancel(op), statefs.CauseMarkerMissing)
}

// requestCancel makes the cancel request that the removal of a marker means, and takes it. The
// marker exists again until the work has ended, so without the request the next daemon would not
// know of the cancel. If the request cannot be made, the cancel is carried out all the same.
func (d *Daemon) requestCancel(op *operation) statefs.TakenRequest {
	taken := statefs.TakenRequest{ID: op.id(), Action: statefs.Cancel}
	err := d.owner.Request(context.Background(), op.id(), statefs.Cancel, nil)
	if err == nil {
		var t statefs.TakenRequest
		var ok bool
		if t, ok, err = d.owner.Requests.Take(op.id(), statefs.Cancel); ok {
			return t
		}
	}
	if err != nil {
		d.logger.Warn("cancel not recorded; it is lost if the daemon ends before the work", "id",
			op.id(), "error", err)
	}
	return taken
}

func (d *Daemon) restoreMarker(op *operation) error {
	if err := d.commit(op.id(), change{rec: op.rec, to: op.state}, restoreMarker); err != nil {
		return err
	}
	marker, _, err := d.owner.Identify(statefs.MarkerName(op.id(), op.state))
	if err != nil {
		return err
	}
	d.change(op, func(s *live.Snapshot) { s.Marker = marker })
	op.missing = missingMarker{}
	return nil
}

// findMarker searches the folder for the marker under another name: a name that begins with the ID,
// or any name of the same file.
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
		if file, _, err := d.owner.Identify(entry.Name()); err == nil && file.Same(op.shown.Marker) {
			return entry.Name(), true, nil
		}
	}
	return "", false, nil
}

func (d *Daemon) undoRename(op *operation, file string) error {
	d.counters.putBack.Add(1)
	d.logger.Warn("marker put back: its new name is not a state", "id", op.id(), "name", file, "state", op.state)
	op.missing = missingMarker{}
	err := d.commit(op.id(), change{file: file, to: op.state}, renameBack)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return errMoved
	}
	return err
}
