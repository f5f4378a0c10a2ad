package daemon

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/live"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// markers reads jobs/: which names exist, and what it means when they are not the expected ones.
type markers struct {
	*core

	dir        *watch.Dir[watchKey]
	watchMu    sync.Mutex // held while events of the watch are passed to reconcileQueue
	strayFiles strayFiles
	// damaged holds what is known of operations whose records were damaged or removed while they
	// waited.
	damaged lockedMap[statefs.ID, damagedRecord]
}

// namesFromListing is set in the names to observe if a listing shows no other name of the
// operation. A name that appeared while the listing was made is reported by the watch, which was
// opened before it.
const namesFromListing = statefs.AllNames + 1

// noNames is enqueued if something else than the names may have changed.
const noNames = namesFromListing << 1

// markerGone is enqueued instead of the name of a marker that left the folder: only whether the expected one is
// there remains to be observed.
const markerGone = noNames << 1

// toObserve returns the names that an event makes a reconcile observe. Of an announced operation they include a
// marker that is gone, because no other name is known.
func (m *markers) toObserve(key watchKey) statefs.NameSet {
	if op, s := m.live.Get(key.id); key.isMarkerGone() && (op != nil || s == nil) {
		return markerGone
	}
	return key.names
}

// isOldMarker reports whether an event only says that a marker is gone which the daemon does not expect, as after
// its own moves and removals. If a file got that name again since, another event says so. s is what the table has.
func (m *markers) isOldMarker(key watchKey, s *live.Snapshot) bool {
	if !key.isMarkerGone() {
		return false
	}
	if s != nil {
		return key.names&statefs.MarkerBit(s.State) == 0
	}
	if m.reconcileQueue.has(key.id) { // asked first: a reconcile that has ended has noted what it left unsettled
		return false
	}
	_, unsettled := m.unsettledIDs.get(key.id)
	return !unsettled
}

// isKnown reports whether a reconcile has nothing to do: only names of markers have changed, and what exists of
// them is what the daemon knows. So are the events of its own submits, moves and removals. Whatever else a
// reconcile does is enqueued with other names.
func (m *markers) isKnown(id statefs.ID, op *operation, names statefs.NameSet) bool {
	if names == 0 || names&^(statefs.AllMarkers|markerGone) != 0 {
		return false
	}
	var known []statefs.State
	switch _, unsettled := m.unsettledIDs.get(id); {
	case unsettled, op == nil && m.live.Announced(id):
		return false
	case op == nil:
	case op.extraNames != 0 || op.misplaced.Load() || op.activeState != nil && op.missing != missingMarker{}:
		return false
	case names&(statefs.MarkerBit(op.state)|markerGone) != 0:
		known = []statefs.State{op.state}
		names |= statefs.MarkerBit(op.state)
	}
	sight, err := m.owner.Observe(id, names)
	return err == nil && len(sight.Irregular) == 0 && slices.Equal(sight.States, known) &&
		(len(known) == 0 || sight.Inodes[0] == op.shown.Marker.Inode)
}

// hasOnlyMarker reports whether the marker of the operation was seen, and no other one.
func (op *operation) hasOnlyMarker(sight statefs.Observation) bool {
	return len(sight.States) == 1 && sight.States[0] == op.state
}

// observe returns which names of an operation exist. Of all possible names, most
// reconciles need only one or two: the names that the watch reported, and the names that the
// previous reconcile left. That is enough because a name appears only with an event. All names are
// checked after lost events, if the result is not the expected one, and for IDs that could not be
// taken over before.
func (m *markers) observe(id statefs.ID, op *operation, names statefs.NameSet) (statefs.Observation, error) {
	if names&statefs.AllNames == statefs.AllNames {
		return m.observeAll(op, id)
	}
	asked := names & statefs.AllNames
	if op != nil {
		asked |= statefs.MarkerBit(op.state) | op.extraNames
	}
	sight, err := m.owner.Observe(id, asked)
	if err != nil {
		return sight, err
	}
	usual := false
	switch {
	case len(sight.Irregular) > 0:
	case op != nil:
		usual = op.hasOnlyMarker(sight)
	case names&namesFromListing != 0:
		usual = len(sight.States) == 1
	default: // finished operations without names, or new ones
		_, unsettled := m.unsettledIDs.get(id)
		usual = len(sight.States) <= 1 && len(sight.Requests) == 0 && !unsettled
	}
	if !usual {
		return m.observeAll(op, id)
	}
	if op != nil {
		op.noteObservation(sight)
	}
	return sight, nil
}

func (m *markers) observeAll(op *operation, id statefs.ID) (statefs.Observation, error) {
	sight, err := m.owner.ObserveAll(id)
	if err == nil && op != nil {
		op.noteObservation(sight)
	}
	return sight, err
}

// LiveIndex returns the up-to-date rows of the operations that the daemon manages, and separately
// the IDs whose markers may differ from them right now, with what is known of each. The row of an
// ID that the daemon does not manage is nil; a state beside it is that of the marker. ok is false
// while only a listing of jobs/ shows what is live: until the daemon is ready, and while the folder
// is scanned instead of watched. names returns the names besides its marker that an ID may have.
func (m *markers) LiveIndex() (rows *history.LiveIndex, unsettled []history.Live, names func(statefs.ID) statefs.NameSet,
	ok bool,
) {
	if !m.isReady() || m.dir.Mode().Name == watch.ModeScan {
		return nil, nil, nil, false
	}
	changed, ids, ok := m.collectUnsettled()
	names = func(id statefs.ID) statefs.NameSet {
		_, is := ids[id]
		if _, s := m.live.Get(id); s != nil && !is {
			return (changed[id] | s.Names) & statefs.AllNames
		}
		return statefs.AllNames
	}
	for id, state := range ids {
		l := history.Live{ID: id, State: state}
		if _, s := m.live.Get(id); s != nil {
			l = rowOf(s)
		}
		unsettled = append(unsettled, l)
	}
	return m.live.Rows(), unsettled, names, ok
}

// collectUnsettled collects the names that an event reported and no reconcile has handled, the IDs about which lists
// may be wrong for that, and the IDs that a reconcile left unsettled. An ID moves through these places in the order in
// which they are read here, so none is missed. ok is false if events were lost, until everything has been
// reconciled.
func (m *markers) collectUnsettled() (changed map[statefs.ID]statefs.NameSet, ids map[statefs.ID]statefs.State, ok bool) {
	changed = make(map[statefs.ID]statefs.NameSet)
	doubtful := make(map[statefs.ID]statefs.NameSet)
	note := func(id statefs.ID, names statefs.NameSet, s *live.Snapshot) {
		if s != nil && names&statefs.AllNames&^statefs.MarkerBit(s.State) == 0 {
			return // as nearly all after a flood of submits
		}
		changed[id] |= names
		if check := namesToCheck(changed[id], s); check != 0 {
			doubtful[id] = check
		}
	}
	m.watchMu.Lock()
	waiting, lost := m.dir.Peek()
	m.watchMu.Unlock()
	reported := make(map[statefs.ID]statefs.NameSet)
	for _, key := range waiting {
		reported[key.id] |= m.toObserve(key)
	}
	m.live.Each(maps.All(reported), note)
	m.live.Each(m.reconcileQueue.all(), note)
	ids = make(map[statefs.ID]statefs.State)
	var mu sync.Mutex
	_ = statefs.ForEachParallel(slices.Collect(maps.Keys(doubtful)), statefs.ParallelLooks, func(id statefs.ID) error {
		if names := doubtful[id]; names == statefs.AllNames || m.anyExists(id, names) {
			mu.Lock()
			defer mu.Unlock()
			ids[id] = ""
		}
		return nil // a marker that cannot be looked for may exist
	})
	for id, state := range m.unsettledIDs.all() {
		if _, changing := ids[id]; !changing { // a change may have replaced the state that was seen
			ids[id] = state
		}
	}
	return changed, ids, !lost
}

// namesToCheck returns which of the names of an operation must not exist if lists are right about it, when only these
// may have changed: the markers, except that of its state. After a flood of submits nearly all pending reconciles are
// of operations with none of them.
func namesToCheck(names statefs.NameSet, s *live.Snapshot) statefs.NameSet {
	if names&statefs.AllNames == statefs.AllNames {
		return statefs.AllNames
	}
	if s != nil {
		names &^= statefs.MarkerBit(s.State)
	}
	return names & statefs.AllMarkers
}

// anyExists reports whether a file with one of the names exists.
func (m *markers) anyExists(id statefs.ID, names statefs.NameSet) bool {
	seen, err := m.owner.Observe(id, names)
	return err != nil || len(seen.States)+len(seen.Irregular) > 0
}

// noteObservation remembers which names exist besides the marker.
func (op *operation) noteObservation(sight statefs.Observation) {
	op.extraNames = 0
	if len(sight.Irregular) > 0 || len(sight.States) != 1 {
		op.extraNames = statefs.AllNames
		return
	}
	for _, ask := range sight.Requests {
		op.extraNames |= statefs.Name{Action: ask}.Bit()
	}
}

// A person who renames a marker to a name of another operation may overwrite the other marker. That
// cancels neither operation. The inode shows whose marker the file was; that operation gets a new
// marker, and the other one keeps the name.

// checkMarkerIdentity compares the observed markers with the known identity of the marker, before
// the reconcile acts on them.
func (m *markers) checkMarkerIdentity(op *operation, sight statefs.Observation) error {
	for i, state := range sight.States {
		if sight.Inodes[i] == op.shown.Marker.Inode {
			continue
		}
		file := statefs.MarkerName(op.id(), state)
		owner := m.markerOwner(file, op.id())
		if owner != nil && state != op.state {
			return m.returnMarker(owner, file)
		}
		if owner != nil {
			m.logger.Warn("marker overwritten manually with the marker of another operation", "id", op.id(), "other",
				owner.id(), "state", state)
			owner.misplaced.Store(true)
			m.reconcileQueue.enqueue(owner.id())
		}
		if len(sight.States) > 1 || state != op.state {
			continue
		}
		// The file was replaced, as an editor does; the new file is the marker from now on.
		marker, _, err := m.owner.Identify(file)
		if err != nil {
			return errMoved
		}
		m.change(op, func(s *live.Snapshot) { s.Marker = marker })
	}
	return nil
}

// markerOwner returns the operation, other than the one with the ID but, whose marker is this file
// in jobs/.
func (m *markers) markerOwner(file string, but statefs.ID) *operation {
	marker, _, err := m.owner.Identify(file)
	if err != nil {
		return nil
	}
	for _, s := range m.live.All() {
		if s.ID != but && s.Marker.Same(marker) {
			return m.operation(s.ID)
		}
	}
	return nil
}

// returnMarker renames a file back to the marker of its owner.
func (m *markers) returnMarker(owner *operation, file string) error {
	state := m.stateOf(owner.id())
	if state == "" {
		return errMoved
	}
	m.counters.putBack.Add(1)
	m.logger.Warn("marker put back: it was moved to the name of another operation", "id", owner.id(), "name",
		file, "state", state)
	err := m.commit(owner.id(), change{file: file, to: state}, renameBack)
	switch {
	case errors.Is(err, fs.ErrExist):
		return m.owner.Quarantine(file, "the marker of "+owner.id().String()+" under the name of another operation")
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return errMoved
	}
	return err
}

// belongsToAnother reports whether a name is the marker of another live operation, ours or foreign.
// Then the other operation keeps the file.
func (m *markers) belongsToAnother(op *operation, file string) bool {
	name, ok := statefs.ParseName(file)
	if !ok || name.State == "" || name.ID == op.id() {
		return false
	}
	if state := m.stateOf(name.ID); state != "" {
		return state == name.State
	}
	if _, err := m.owner.ReadRecord(name.ID); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	gone, err := m.owner.ForeignGone(name.ID, file)
	return err == nil && !gone
}

// restoreMisplaced recreates a marker that was moved onto the marker of another operation.
func (m *markers) restoreMisplaced(op *operation) error {
	op.misplaced.Store(false)
	m.counters.putBack.Add(1)
	m.logger.Warn("marker restored: it was moved onto the marker of another operation", "id", op.id(), "state", op.state)
	if err := m.restoreMarker(op); err != nil {
		return err
	}
	return errMoved
}

// findMisnamed returns the live records, other than lost, whose marker was renamed to the bare ID
// or to an ID with an unknown ending. The list of live operations may lack them: it is a cache, and
// a power cut may have lost it.
func (m *markers) findMisnamed(listing statefs.Listing, present map[statefs.ID]bool,
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
		if rec, err := m.owner.ReadRecord(id); err == nil && markerOf(rec).Live() {
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
	names, err := os.ReadDir(m.owner.JobsDir())
	for _, name := range names {
		if id, err := statefs.ParseID(name.Name()); err == nil {
			look(id)
		}
	}
	return found, err
}

// overwrittenMarkers returns the markers whose first line is not the creation time of their own
// operation, by that time.
func (m *markers) overwrittenMarkers(markers []statefs.Entry) map[int64]string {
	found := make(map[int64]string)
	for _, e := range markers {
		stamp, err := m.owner.Stamp(e.File)
		if err != nil {
			continue // an unreadable marker shows no owner
		}
		rec, err := m.owner.ReadRecord(e.ID)
		if err != nil || rec.CreatedAt.UnixMicro() != stamp.At.UnixMicro() {
			found[stamp.At.UnixMicro()] = e.File
		}
	}
	return found
}

func (m *markers) restoreMarker(op *operation) error {
	if err := m.commit(op.id(), change{rec: op.rec, to: op.state}, restoreMarker); err != nil {
		return err
	}
	marker, _, err := m.owner.Identify(statefs.MarkerName(op.id(), op.state))
	if err != nil {
		return err
	}
	m.change(op, func(s *live.Snapshot) { s.Marker = marker })
	op.missing = missingMarker{}
	return nil
}

// findMarker searches the folder for the marker under another name. Another file whose name begins with the ID is
// not the marker: a person who removes the marker beside it means a cancel.
func (m *markers) findMarker(op *operation) (file string, place decide.Place, err error) {
	entries, err := os.ReadDir(m.owner.JobsDir())
	if err != nil {
		return "", "", err
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() {
			continue
		}
		if file, _, err := m.owner.Identify(entry.Name()); err == nil && file.Same(op.shown.Marker) {
			if m.belongsToAnother(op, entry.Name()) {
				return entry.Name(), decide.Misplaced, nil
			}
			return entry.Name(), decide.Misnamed, nil
		}
	}
	return "", decide.Nowhere, nil
}

func (m *markers) undoRename(op *operation, x seen, _ decide.Answer) error {
	m.counters.putBack.Add(1)
	m.logger.Warn("marker put back: its new name is not a state", "id", op.id(), "name", x.file, "state", op.state)
	op.missing = missingMarker{}
	err := m.commit(op.id(), change{file: x.file, to: op.state}, renameBack)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return errMoved
	}
	return err
}

// removeDuplicateMarkers removes markers that were created beside the daemon's own. A marker that
// is being renamed can be seen under both names. Two markers exist only if the names have different
// identities, or the same identity and a link count of two.
func (m *markers) removeDuplicateMarkers(op *operation, x seen, _ decide.Answer) error {
	for _, state := range x.markers() {
		if state == op.state {
			continue
		}
		ours, _, err := m.owner.Identify(statefs.MarkerName(op.id(), op.state))
		if err != nil {
			return errMoved
		}
		other, names, err := m.owner.Identify(statefs.MarkerName(op.id(), state))
		if err != nil {
			continue
		}
		if ours.Same(other) && names < 2 {
			return errMoved
		}
		if known := op.shown.Marker; !ours.Same(known) && other.Same(known) {
			// The daemon's marker was moved and another file was put in its place: the move counts.
			if err := m.commit(op.id(), change{from: op.state}, removeExtra); err != nil {
				return err
			}
			return errMoved
		}
		m.counters.putBack.Add(1)
		m.logger.Warn("second marker removed", "id", op.id(), "marker", state, "state", op.state)
		if err := m.commit(op.id(), change{from: state}, removeExtra); err != nil {
			return err
		}
	}
	return nil
}

// undoMove moves a marker back after a rename that corresponds to no request.
func (m *markers) undoMove(op *operation, x seen, _ decide.Answer) error {
	moved := x.markers()[0]
	m.counters.putBack.Add(1)
	m.logger.Warn("marker put back: this move is not a request", "id", op.id(), "from", op.state, "to", moved)
	return m.commit(op.id(), change{from: moved, to: op.state}, moveMarker)
}

// damagedRecord is what is known of an operation whose record was damaged or removed while it
// waited.
type damagedRecord struct {
	shown *live.Snapshot
	err   error
}

// rebuilt creates a record from what the daemon remembers of an operation: its job, its parameters
// and its submit time. If one of these is missing or does not fit, the record contains only the ID.
func (m *markers) rebuilt(id statefs.ID) (*statefs.Record, error) {
	unknown := statefs.UnknownRecord(id, m.owner.Now())
	damaged, has := m.damaged.get(id)
	if !has {
		return unknown, nil
	}
	row, err := damaged.shown.Row.Unpack()
	if err != nil || row.ParamsCut {
		return unknown, nil //nolint:nilerr // without parameters, only the ID is known
	}
	def := m.config.Catalog.Get(row.Group, row.Job)
	if def == nil {
		return unknown, nil
	}
	params, err := def.BindRecorded([]byte(row.Params))
	if err != nil {
		return unknown, nil //nolint:nilerr // the job was changed, and these parameters do not fit
	}
	s, err := submit.Build(def, params, submit.Options{Key: &row.Key}, m.owner.Now())
	if err != nil {
		return unknown, nil //nolint:nilerr // the job was changed, and no operation can be built from it
	}
	s.Tags = row.Tags
	if s.Steps == nil { // otherwise the row holds the lane of a step
		s.Lane = row.Lane
	}
	return m.owner.Rebuild(id, s, row.Created)
}

// markerOf returns the state that the marker of a record must have; a terminal state means no
// marker.
func markerOf(rec *statefs.Record) statefs.State {
	switch {
	case rec.Trailing:
		return statefs.Trailing
	case rec.Next.Live():
		return rec.Next
	}
	return rec.Status
}
