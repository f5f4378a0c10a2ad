package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/live"
	"github.com/jobdir/jobdir/statefs"
)

// A person who renames a marker to a name of another operation may overwrite the other marker. That
// cancels neither operation. The inode shows whose marker the file was; that operation gets a new
// marker, and the other one keeps the name.

// checkMarkerIdentity compares the observed markers with the known identity of the marker, before
// the reconcile acts on them.
func (d *Daemon) checkMarkerIdentity(op *operation, sight statefs.Observation) error {
	for i, state := range sight.States {
		if sight.Inodes[i] == op.shown.Marker.Inode {
			continue
		}
		file := statefs.MarkerName(op.id(), state)
		owner := d.markerOwner(file, op.id())
		if owner != nil && state != op.state {
			return d.returnMarker(owner, file)
		}
		if owner != nil {
			d.logger.Warn("marker overwritten manually with the marker of another operation", "id", op.id(), "other",
				owner.id(), "state", state)
			owner.misplaced.Store(true)
			d.reconcileQueue.enqueue(owner.id())
		}
		if len(sight.States) > 1 || state != op.state {
			continue
		}
		// The file was replaced, as an editor does; the new file is the marker from now on.
		marker, _, err := d.owner.Identify(file)
		if err != nil {
			return errMoved
		}
		d.change(op, func(s *live.Snapshot) { s.Marker = marker })
	}
	return nil
}

// markerOwner returns the operation, other than the one with the ID but, whose marker is this file
// in jobs/.
func (d *Daemon) markerOwner(file string, but statefs.ID) *operation {
	marker, _, err := d.owner.Identify(file)
	if err != nil {
		return nil
	}
	for _, s := range d.live.All() {
		if s.ID != but && s.Marker.Same(marker) {
			return d.operation(s.ID)
		}
	}
	return nil
}

// returnMarker renames a file back to the marker of its owner.
func (d *Daemon) returnMarker(owner *operation, file string) error {
	state := d.stateOf(owner.id())
	if state == "" {
		return errMoved
	}
	d.counters.putBack.Add(1)
	d.logger.Warn("marker put back: it was moved to the name of another operation", "id", owner.id(), "name",
		file, "state", state)
	err := d.commit(owner.id(), change{file: file, to: state}, renameBack)
	switch {
	case errors.Is(err, fs.ErrExist):
		return d.owner.Quarantine(file, "the marker of "+owner.id().String()+" under the name of another operation")
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return errMoved
	}
	return err
}

// belongsToAnother reports whether a name is the marker of another live operation, ours or foreign.
// Then the other operation keeps the file.
func (d *Daemon) belongsToAnother(op *operation, file string) bool {
	name, ok := statefs.ParseName(file)
	if !ok || name.State == "" || name.ID == op.id() {
		return false
	}
	if state := d.stateOf(name.ID); state != "" {
		return state == name.State
	}
	if _, err := d.owner.ReadRecord(name.ID); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	gone, err := d.owner.ForeignGone(name.ID, file)
	return err == nil && !gone
}

// restoreMisplaced recreates a marker that was moved onto the marker of another operation.
func (d *Daemon) restoreMisplaced(op *operation) error {
	op.misplaced.Store(false)
	d.counters.putBack.Add(1)
	d.logger.Warn("marker restored: it was moved onto the marker of another operation", "id", op.id(), "state", op.state)
	if err := d.restoreMarker(op); err != nil {
		return err
	}
	return errMoved
}

// findMisnamed returns the live records, other than lost, whose marker was renamed to the bare ID
// or to an ID with an unknown ending. The list of live operations may lack them: it is a cache, and
// a power cut may have lost it.
func (d *Daemon) findMisnamed(listing statefs.Listing, present map[statefs.ID]bool,
	lost []*statefs.Record,
) (found []*statefs.Record, err error) {
	known := make(map[statefs.ID]bool, len(lost))
	for _, rec := range lost {
		known[rec.ID] = true
	}
	look := func(id statefs.ID) {
		if present[id] || known[id] {
			return
		}
		if rec, err := d.owner.ReadRecord(id); err == nil && markerOf(rec).Live() {
			known[id] = true
			found = append(found, rec)
		}
	}
	for _, e := range listing.Unknown {
		look(e.ID)
	}
	if listing.Stray == 0 {
		return found, nil
	}
	names, err := os.ReadDir(d.owner.JobsDir())
	for _, name := range names {
		if id, err := statefs.ParseID(name.Name()); err == nil {
			look(id)
		}
	}
	return found, err
}

// findLostMarkers searches for markers that were renamed while no daemon ran: to the bare ID, to an
// unknown ending, or to a name of another operation, where the creation time in the first line
// shows the owner.
func (d *Daemon) findLostMarkers(recs []*statefs.Record, listing statefs.Listing) (lost []decide.Lost, err error) {
	renamed := make(map[statefs.ID]string)
	for _, e := range listing.Unknown {
		renamed[e.ID] = e.File
	}
	foreign := d.overwrittenMarkers(listing.Markers)
	for _, rec := range recs {
		l := decide.Lost{Renamed: renamed[rec.ID], Under: foreign[rec.CreatedAt.UnixMicro()]}
		if l.Renamed == "" {
			if l.Renamed, err = bareMarker(d.owner.JobsDir(), rec.ID); err != nil {
				return nil, err
			}
		}
		lost = append(lost, l)
	}
	return lost, nil
}

// bareMarker returns the name of a file that is named by the bare ID, which means that the ending of
// a marker was cut off; "" for none. Listings do not contain such names.
func bareMarker(jobsDir string, id statefs.ID) (file string, err error) {
	info, err := os.Lstat(filepath.Join(jobsDir, id.String()))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil || !info.Mode().IsRegular():
		return "", err
	}
	return id.String(), nil
}

// overwrittenMarkers returns the markers whose first line is not the creation time of their own
// operation, by that time.
func (d *Daemon) overwrittenMarkers(markers []statefs.Entry) map[int64]string {
	found := make(map[int64]string)
	for _, e := range markers {
		stamp, err := d.owner.Stamp(e.File)
		if err != nil {
			continue // an unreadable marker shows no owner
		}
		rec, err := d.owner.ReadRecord(e.ID)
		if err != nil || rec.CreatedAt.UnixMicro() != stamp.At.UnixMicro() {
			found[stamp.At.UnixMicro()] = e.File
		}
	}
	return found
}
