package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jobdir/jobdir/statefs"
)

// A marker that somebody renames to a name of another operation may overwrite that one's marker. Nobody meant to cancel either: the
// identity tells whose marker it was, and that operation gets one again, while the other keeps the name.

// identify compares the markers that a look found with the one that the daemon knows, before anything is done with them.
func (d *Daemon) identify(op *operation, sight statefs.Sight) error {
	for i, state := range sight.States {
		if sight.Inodes[i] == op.marker.Load().Inode {
			continue
		}
		file := statefs.MarkerName(op.id(), state)
		owner := d.holder(file, op.id())
		if owner != nil && state != op.state {
			return d.giveBack(owner, file)
		}
		if owner != nil {
			d.logger.Warn("marker overwritten by hand with the one of another operation", "id", op.id(), "other", owner.id(), "state", state)
			owner.displaced.Store(true)
			d.looks.want(owner.id())
		}
		if len(sight.States) > 1 || state != op.state {
			continue
		}
		// It was replaced, as an editor does: from now on this is the marker.
		marker, _, err := d.owner.Identify(file)
		if err != nil {
			return errMoved
		}
		op.marker.Store(&marker)
	}
	return nil
}

// holder returns the operation, other than the one with this ID, whose marker is the file with this name in jobs/.
func (d *Daemon) holder(file string, but statefs.ID) *operation {
	marker, _, err := d.owner.Identify(file)
	if err != nil {
		return nil
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for id, op := range d.ops {
		if id != but && op.marker.Load().Same(marker) {
			return op
		}
	}
	return nil
}

// giveBack renames a file to the marker of the operation that it was taken from.
func (d *Daemon) giveBack(owner *operation, file string) error {
	state, ok := owner.shown.Load().(statefs.State)
	if !ok {
		return errMoved
	}
	d.counters.putBack.Add(1)
	d.logger.Warn("marker put back: it was moved to the name of another operation", "id", owner.id(), "name", file, "state", state)
	err := d.owner.PutBack(file, owner.id(), state)
	switch {
	case errors.Is(err, fs.ErrExist):
		return d.owner.Quarantine(file, "the marker of "+owner.id().String()+" under the name of another operation")
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return errMoved
	}
	return err
}

// heldByAnother reports whether a name belongs to another operation that lives, of ours or of a foreign program: it keeps the file.
func (d *Daemon) heldByAnother(op *operation, file string) bool {
	name, ok := statefs.ParseName(file)
	if !ok || name.State == "" || name.ID == op.id() {
		return false
	}
	if other := d.operation(name.ID); other != nil {
		return other.shown.Load() == name.State
	}
	if _, err := d.owner.ReadRecord(name.ID); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	gone, err := d.owner.ForeignGone(name.ID, file)
	return err == nil && !gone
}

// restoreDisplaced makes the marker again that somebody moved onto the one of another operation.
func (d *Daemon) restoreDisplaced(op *operation) error {
	op.displaced.Store(false)
	d.counters.putBack.Add(1)
	d.logger.Warn("marker made again: it was moved onto the one of another operation", "id", op.id(), "state", op.state)
	if err := d.restore(op); err != nil {
		return err
	}
	return errMoved
}

// misnamed returns the live records whose marker has an ending without a meaning, or none, beside those that are known to be lost: a
// power cut may have taken the list of live operations, which is a cache.
func (d *Daemon) misnamed(listing statefs.Listing, present map[statefs.ID]bool, lost []*statefs.Record) (found []*statefs.Record, err error) {
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
	if listing.Strange == 0 {
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

// restoreRenamed gives markers back that were renamed while no daemon ran: to an ending without a meaning, or to a name of another
// operation, where the first line still tells whose it was. It returns the records whose marker is really gone.
func (d *Daemon) restoreRenamed(lost []*statefs.Record, listing statefs.Listing) ([]*statefs.Record, error) {
	if len(lost) == 0 {
		return nil, nil
	}
	renamed := make(map[statefs.ID]string)
	for _, e := range listing.Unknown {
		renamed[e.ID] = e.File
	}
	foreign := d.foreignContent(listing.Markers)
	var gone []*statefs.Record
	for _, rec := range lost {
		state := markerOf(rec)
		var err error
		file, found := renamed[rec.ID]
		if !found {
			file, found, err = d.bareMarker(rec.ID)
		}
		if err != nil {
			return nil, err
		}
		if found {
			err = d.owner.PutBack(file, rec.ID, state)
		} else if file, found = foreign[rec.CreatedAt.UnixMicro()]; found {
			err = d.owner.Restore(rec.ID, state, rec.CreatedAt)
		}
		if err != nil {
			return nil, err
		}
		if !found {
			gone = append(gone, rec)
			continue
		}
		d.counters.putBack.Add(1)
		d.logger.Warn("marker put back: it was renamed while no daemon ran", "id", rec.ID, "name", file, "state", state)
	}
	return gone, nil
}

// bareMarker reports whether somebody cut off the ending of a marker. Such a name means nothing by itself, so no listing has it.
func (d *Daemon) bareMarker(id statefs.ID) (file string, found bool, err error) {
	info, err := os.Lstat(filepath.Join(d.owner.JobsDir(), id.String()))
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	return id.String(), err == nil && info.Mode().IsRegular(), err
}

// foreignContent returns the markers whose first line is not the time of their own operation, by that time.
func (d *Daemon) foreignContent(markers []statefs.Entry) map[int64]string {
	found := make(map[int64]string)
	for _, e := range markers {
		stamp, err := d.owner.Stamp(e.File)
		if err != nil {
			continue // what cannot be read tells nothing
		}
		rec, err := d.owner.ReadRecord(e.ID)
		if err != nil || rec.CreatedAt.UnixMicro() != stamp.At.UnixMicro() {
			found[stamp.At.UnixMicro()] = e.File
		}
	}
	return found
}
