package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"
)

// SettleAge is how long a file that belongs to nothing is left to rest before a sweep touches it.
const SettleAge = 5 * time.Second

const (
	// requestAge is how old a request without a live operation must be before it goes: a program may write the request and the
	// marker of its own operation in any order.
	requestAge = SettleAge
	// tempAge is how old a temporary file must be before it goes.
	tempAge = 24 * time.Hour
	// startSlack covers the resolution of a process start time, which the kernel counts from a boot time in whole seconds.
	startSlack = 2 * time.Second
)

// Action is what a sweep does with a file.
type Action string

// The actions of a sweep.
const (
	Remove        Action = "remove"
	MoveToCorrupt Action = "move_to_corrupt"
	ReportOnly    Action = "report"
	FinishOff     Action = "remove_ended"
)

// Finding is one file that belongs to nothing or that contradicts another, and what is done with it.
type Finding struct {
	File   string `json:"file"`
	Action Action `json:"action"`
	Reason string `json:"reason"`

	act func(o *Owner) error
}

// PlanSweep finds everything in the storage that belongs to nothing. It changes nothing. managed says which operations a daemon
// has in hand: their own looks repair them, so a sweep leaves them alone; nil means none. What could not be examined is in the
// error, beside the findings.
func (t *Tree) PlanSweep(managed func(ID) bool) ([]Finding, error) {
	if managed == nil {
		managed = func(ID) bool { return false }
	}
	listing, err := t.List()
	if err != nil {
		return nil, err
	}
	known, err := t.readLive()
	if err != nil {
		return nil, err
	}
	s := &sweep{tree: t, now: t.options.Now(), managed: managed, known: known, markers: make(map[ID][]Entry)}
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
	for _, file := range listing.Odd {
		s.find(path.Join(jobsDir, file), ReportOnly, "not a regular file; it is never opened", nil)
	}
	s.temporary()
	return s.findings, errors.Join(s.errs...)
}

// Sweep plans and carries out. It returns what was done; an error beside it says what could not be.
func (o *Owner) Sweep(managed func(ID) bool) ([]Finding, error) {
	plan, err := o.PlanSweep(managed)
	errs := []error{err}
	done := plan[:0]
	for _, f := range plan {
		if f.act != nil {
			if err := f.act(o); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		done = append(done, f)
	}
	return done, errors.Join(errs...)
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

func (s *sweep) find(file string, action Action, reason string, act func(*Owner) error) {
	s.findings = append(s.findings, Finding{file, action, reason, act})
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
		for _, e := range entries { // one that the living process made is enough
			if gone, goneErr = s.tree.ForeignGone(id, e.File); goneErr != nil || !gone {
				break
			}
		}
		return gone, goneErr
	}
	switch Judge(states, rec, recordErr, s.known[id], gone) {
	case ForeignGone:
		s.forget(id)
		for _, e := range entries {
			s.find(path.Join(jobsDir, e.File), Remove, fmt.Sprintf("the program with PID %d that kept it is gone", id.PID()), removal(e.File))
		}
	case Orphan:
		s.forget(id)
		for _, e := range entries {
			s.find(path.Join(jobsDir, e.File), MoveToCorrupt, "a marker without a record", func(o *Owner) error {
				return o.Quarantine(e.File, "a marker of this storage without a record")
			})
		}
	case Ended:
		for _, e := range entries {
			s.find(path.Join(jobsDir, e.File), FinishOff, fmt.Sprintf("the operation is %s", rec.Status), removal(e.File))
		}
	case Unreadable:
		s.find(dayFile(id, ".json"), ReportOnly, recordErr.Error(), nil) // repaired when the operation is taken in hand
	case LeaveAlone:
		if goneErr != nil {
			recordErr = goneErr
		}
		if !errors.Is(recordErr, fs.ErrNotExist) { // a marker that went while we looked needs nothing
			s.errs = append(s.errs, fmt.Errorf("leave %s alone: %w", id, recordErr))
		}
	case Agree, RollForward, Trails, TwoMarkers, Foreign, Missing, Nothing:
		// A live operation: its daemon repairs it when it looks, a foreign program minds its own files.
	}
}

func (s *sweep) forget(id ID) {
	if s.gone == nil {
		s.gone = make(map[ID]bool)
	}
	s.gone[id] = true
}

// request looks for requests that nobody will take.
func (s *sweep) request(e Entry) {
	if s.managed(e.ID) || (len(s.markers[e.ID]) > 0 && !s.gone[e.ID]) {
		return
	}
	if s.gone[e.ID] {
		s.find(path.Join(jobsDir, e.File), Remove, "the program that it was for is gone", removal(e.File))
		return
	}
	if !s.olderThan(e.File, requestAge) {
		return
	}
	live, err := s.tree.hasMarker(e.ID)
	if err != nil {
		s.errs = append(s.errs, err)
	}
	if !live && err == nil {
		s.find(path.Join(jobsDir, e.File), Remove, "a request without a live operation", removal(e.File))
	}
}

// unknown looks for files that bear an ID and an ending without a meaning, where no daemon puts them back.
func (s *sweep) unknown(e Entry) {
	if len(s.markers[e.ID]) > 0 {
		s.beside(e)
		return
	}
	if s.managed(e.ID) || !s.olderThan(e.File, requestAge) {
		return // its operation looks for its marker under this name
	}
	if !s.known[e.ID] {
		// A living program's own files are never touched, whatever it calls them.
		if gone, err := s.tree.ForeignGone(e.ID, e.File); err != nil || !gone {
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.errs = append(s.errs, fmt.Errorf("leave %s alone: %w", e.File, err))
			}
			return
		}
	}
	s.find(path.Join(jobsDir, e.File), MoveToCorrupt, "its ending means nothing and no operation has this ID", func(o *Owner) error {
		return o.Quarantine(e.File, "an ending without a meaning, and no live operation with this ID")
	})
}

// beside looks at a file with an ending without a meaning beside the marker of an operation of ours. Editors and programs that
// write under another name first have such files for a moment, so it must have rested for a while.
func (s *sweep) beside(e Entry) {
	if !s.managed(e.ID) && !s.known[e.ID] || !s.olderThan(e.File, requestAge) {
		return
	}
	changed, err := s.tree.changed(e.File)
	if err != nil || s.now.Sub(changed) <= requestAge {
		return // gone, or renamed just now
	}
	s.find(path.Join(jobsDir, e.File), MoveToCorrupt, "its ending means nothing", func(o *Owner) error {
		return o.Quarantine(e.File, "an ending without a meaning, beside the marker of a live operation")
	})
}

// olderThan reports whether a file of jobs/ is there and was last written longer ago than age. Its content is not asked: it may
// be unreadable.
func (s *sweep) olderThan(file string, age time.Duration) bool {
	info, err := s.tree.jobs.Lstat(file)
	if err != nil {
		return false
	}
	return s.now.Sub(info.ModTime()) > age
}

func (s *sweep) temporary() {
	entries, err := fs.ReadDir(s.tree.root.FS(), tmpDir)
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
		s.find(name, Remove, "a temporary file older than a day", func(o *Owner) error { return o.root.RemoveAll(name) })
	}
}

func removal(file string) func(*Owner) error {
	return func(o *Owner) error { return o.RemoveName(file) }
}
