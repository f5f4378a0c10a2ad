package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"
)

// SettleAge is how long a stray file must be unchanged before a sweep touches it.
const SettleAge = 5 * time.Second

// QuietPeriod is how long an invalid file in jobs/, new/ or lanes/ must not have been written before it
// counts as invalid: a program may still be writing it in place.
const QuietPeriod = 100 * time.Millisecond

const (
	// requestAge is the minimum age at which a request without a live operation is removed: a
	// program may write the request and the marker of its own operation in any order.
	requestAge = SettleAge
	// tempAge is the minimum age at which a temporary file is removed.
	tempAge = 24 * time.Hour
	// startSlack covers the resolution of a process start time, which the kernel counts from a boot time in whole seconds.
	startSlack = 2 * time.Second
)

// SweepAction is what a sweep does with a file.
type SweepAction string

// The actions of a sweep.
const (
	SweepRemove        SweepAction = "remove"
	SweepMoveToCorrupt SweepAction = "move_to_corrupt"
	SweepReportOnly    SweepAction = "report"
	SweepRemoveEnded   SweepAction = "remove_ended"
)

// Finding is a file that belongs to nothing or contradicts another, and the action for it.
type Finding struct {
	File   string      `json:"file"`
	Action SweepAction `json:"action"`
	Reason string      `json:"reason"`

	apply func(o *Owner) error
}

// PlanSweep finds everything in the storage that belongs to nothing. It changes nothing. managed
// reports whether a daemon manages an operation; the daemon's reconciles repair those, so a sweep
// skips them. nil means none. The error lists what could not be examined; the findings are valid
// beside it.
func (t *Tree) PlanSweep(managed func(ID) bool) ([]Finding, error) {
	if managed == nil {
		managed = func(ID) bool { return false }
	}
	listing, err := t.List()
	if err != nil {
		return nil, err
	}
	known, err := t.live.IDs()
	if err != nil {
		return nil, err
	}
	s := &sweep{
		tree: t, now: t.options.Now(), managed: managed, known: known,
		markers: make(map[ID][]Entry), gone: make(map[ID]bool),
	}
	for _, e := range listing.Markers {
		s.markers[e.ID] = append(s.markers[e.ID], e)
	}
	for id, entries := range s.markers {
		if !managed(id) {
			s.operation(id, entries)
		}
	}
	for _, e := range listing.Requests {
		s.request(e)
	}
	for _, e := range listing.Unknown {
		s.unknown(e)
	}
	for _, file := range listing.Irregular {
		s.addFinding(path.Join(jobsDir, file), SweepReportOnly, "not a regular file; it is never opened", nil)
	}
	s.temporary()
	return s.findings, errors.Join(s.errs...)
}

// Sweep plans a sweep and carries it out. It returns what was done; the error lists what could not
// be.
func (o *Owner) Sweep(managed func(ID) bool) ([]Finding, error) {
	plan, err := o.PlanSweep(managed)
	errs := []error{err}
	done := plan[:0]
	for _, f := range plan {
		if f.apply != nil {
			if err := f.apply(o); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		done = append(done, f)
	}
	return done, errors.Join(errs...)
}

// RemoveForeign removes the markers and requests of a foreign operation, whether its program lives
// or not, and returns their names. The error wraps ErrNotLive if there is no marker. An operation
// with a record is refused: it has to be cancelled.
func (t *Tree) RemoveForeign(id ID) (files []string, err error) {
	if _, err := t.ReadRecord(id); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the markers of %s: it is an operation of this storage: cancel it", id)
	}
	sight, err := t.ObserveAll(id)
	if err != nil {
		return nil, err
	}
	if len(sight.States) == 0 {
		return nil, fmt.Errorf("operation '%s' %w", id, ErrNotLive)
	}
	for _, ask := range sight.Requests {
		files = append(files, RequestName(id, ask))
	}
	for _, state := range sight.States {
		files = append(files, MarkerName(id, state))
	}
	for _, file := range files {
		if err := t.jobs.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove %s: %w", file, err)
		}
	}
	return files, t.jobsSync.Sync()
}

type sweep struct {
	tree     *Tree
	now      time.Time
	managed  func(ID) bool
	known    map[ID]bool
	markers  map[ID][]Entry
	gone     map[ID]bool
	findings []Finding
	errs     []error
}

func (s *sweep) addFinding(file string, action SweepAction, reason string, act func(*Owner) error) {
	s.findings = append(s.findings, Finding{file, action, reason, act})
}

// addFiles adds the same finding for files of jobs/.
func (s *sweep) addFiles(
	action SweepAction, reason string, act func(o *Owner, file string) error, entries ...Entry,
) {
	for _, e := range entries {
		s.addFinding(path.Join(jobsDir, e.File), action, reason, func(o *Owner) error { return act(o, e.File) })
	}
}

// operation compares the markers of one operation with its record.
func (s *sweep) operation(id ID, entries []Entry) {
	states := make([]State, len(entries))
	for i, e := range entries {
		states[i] = e.State
	}
	rec, recordErr := s.tree.ReadRecord(id)
	var goneErr error
	gone := func() (gone bool, err error) {
		for _, e := range entries { // one marker of the living process is enough
			if gone, goneErr = s.tree.ForeignGone(id, e.File); goneErr != nil || !gone {
				break
			}
		}
		return gone, goneErr
	}
	switch Interpret(states, rec, recordErr, s.known[id], gone) {
	case ForeignGone:
		s.gone[id] = true
		s.addFiles(SweepRemove, fmt.Sprintf("the program with PID %d that kept it is gone", id.PID()), removal, entries...)
	case Orphan:
		s.gone[id] = true
		s.addFiles(SweepMoveToCorrupt, "a marker without a record",
			quarantine("a marker of this storage without a record"), entries...)
	case Ended:
		s.addFiles(SweepRemoveEnded, fmt.Sprintf("the operation is %s", rec.Status), removal, entries...)
	case Unreadable:
		// repaired when the daemon activates the operation
		s.addFinding(dayFile(id, ".json"), SweepReportOnly, recordErr.Error(), nil)
	case LeaveAlone:
		if goneErr != nil {
			recordErr = goneErr
		}
		if !errors.Is(recordErr, fs.ErrNotExist) { // a marker removed in the meantime needs nothing
			s.errs = append(s.errs, fmt.Errorf("leave %s alone: %w", id, recordErr))
		}
	case Agree, RollForward, FinishingOptional, TwoMarkers, Foreign, Missing, Nothing:
		// A live operation: its daemon repairs it when it reconciles, and a foreign program
		// maintains its own files.
	}
}

// request finds requests that will never be taken.
func (s *sweep) request(e Entry) {
	if s.managed(e.ID) || (len(s.markers[e.ID]) > 0 && !s.gone[e.ID]) {
		return
	}
	if s.gone[e.ID] {
		s.addFiles(SweepRemove, "the program that it was for is gone", removal, e)
		return
	}
	if !s.olderThan(e.File, requestAge) {
		return
	}
	switch _, err := s.tree.State(e.ID); {
	case errors.Is(err, ErrNotLive):
		s.addFiles(SweepRemove, "a request without a live operation", removal, e)
	case err != nil:
		s.errs = append(s.errs, err)
	}
}

// unknown finds files with an ID and an unknown suffix that no daemon will rename back.
func (s *sweep) unknown(e Entry) {
	if len(s.markers[e.ID]) > 0 {
		s.unknownBesideMarker(e)
		return
	}
	if s.managed(e.ID) || !s.olderThan(e.File, requestAge) {
		return // its reconcile looks for the marker under this name
	}
	if !s.known[e.ID] {
		// The files of a living program are never touched, whatever their suffix.
		if gone, err := s.tree.ForeignGone(e.ID, e.File); err != nil || !gone {
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.errs = append(s.errs, fmt.Errorf("leave %s alone: %w", e.File, err))
			}
			return
		}
	}
	s.addFiles(SweepMoveToCorrupt, "unknown ending, and no operation has this ID",
		quarantine("an ending without a meaning, and no live operation with this ID"), e)
}

// unknownBesideMarker finds files with an unknown suffix beside the marker of an operation of this
// storage. Editors and programs that write to a temporary name create such files briefly, so the
// file must have been unchanged for requestAge.
func (s *sweep) unknownBesideMarker(e Entry) {
	if !s.managed(e.ID) && !s.known[e.ID] || !s.olderThan(e.File, requestAge) {
		return
	}
	changed, err := s.tree.nameChangedAt(e.File)
	if err != nil || s.now.Sub(changed) <= requestAge {
		return // gone, or renamed just now
	}
	s.addFiles(SweepMoveToCorrupt, "unknown ending",
		quarantine("an ending without a meaning, beside the marker of a live operation"), e)
}

// olderThan reports whether a file of jobs/ exists and was last written longer ago than age. It
// does not read the content, which may be unreadable.
func (s *sweep) olderThan(file string, age time.Duration) bool {
	info, err := s.tree.jobs.Lstat(file)
	if err != nil {
		return false
	}
	return s.now.Sub(info.ModTime()) > age
}

func (s *sweep) temporary() {
	entries, err := s.tree.readFolder(tmpDir)
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("sweep %s: %w", tmpDir, err))
		return
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || s.now.Sub(info.ModTime()) <= tempAge {
			continue
		}
		name := path.Join(tmpDir, entry.Name())
		s.addFinding(name, SweepRemove, "a temporary file older than a day",
			func(o *Owner) error { return o.root.RemoveAll(name) })
	}
}

// removal and quarantine are what happens to a file of jobs/.
var removal = (*Owner).RemoveName

func quarantine(reason string) func(o *Owner, file string) error {
	return func(o *Owner, file string) error { return o.Quarantine(file, reason) }
}
