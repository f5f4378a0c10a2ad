package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs/commit"
	"github.com/jobdir/jobdir/statefs/machine"
)

// Verdict is the result of comparing the marker and the record of an operation.
type Verdict string

// The verdicts, one for each row of the table in docs/durability.md.
const (
	// Agree: the marker is the state.
	Agree Verdict = "agree"
	// RollForward: the record was written and the rename did not happen; carry it out.
	RollForward Verdict = "roll_forward"
	// Ended: the record is terminal and the marker was not removed.
	Ended Verdict = "ended"
	// FinishingOptional: the operation is completed and its optional steps go on.
	FinishingOptional Verdict = "trails"
	// Unreadable: the record exists and cannot be decoded.
	Unreadable Verdict = "unreadable"
	// Foreign: a live program that the daemon did not start keeps this marker.
	Foreign Verdict = "foreign"
	// ForeignGone: the program that kept this marker is gone.
	ForeignGone Verdict = "foreign_gone"
	// Orphan: a marker of this storage without a record.
	Orphan Verdict = "orphan"
	// Missing: a live record without a marker; the operation is cancelled if a second observation
	// confirms it.
	Missing Verdict = "missing"
	// TwoMarkers: a person made another marker; one of them is removed.
	TwoMarkers Verdict = "two_markers"
	// LeaveAlone: reading the record failed, so nothing is known.
	LeaveAlone Verdict = "leave_alone"
	// Nothing: neither a marker nor a live record exists.
	Nothing Verdict = "nothing"
)

// Interpret compares the markers of an operation with its record. It does no I/O. recordErr is the
// error of reading the record. foreignGone is called only for a marker without a record and returns
// whether the program in the ID is gone. known means that this storage gave out the ID.
func Interpret(markers []State, rec *Record, recordErr error, known bool, foreignGone func() (bool, error)) Verdict {
	var corrupt *CorruptError
	switch {
	case errors.As(recordErr, &corrupt):
		if len(markers) == 0 {
			return Nothing
		}
		return Unreadable
	case recordErr != nil && !errors.Is(recordErr, fs.ErrNotExist):
		return LeaveAlone
	case recordErr != nil:
		return interpretWithoutRecord(markers, known, foreignGone)
	case rec.Status.Terminal():
		if len(markers) == 0 {
			return Nothing
		}
		if rec.Trailing {
			return FinishingOptional
		}
		return Ended
	case len(markers) == 0:
		return Missing
	case len(markers) > 1:
		return TwoMarkers
	case rec.Next != "" && rec.Next != markers[0] && rec.transitionPendingAt(markers[0]):
		return RollForward
	}
	return Agree
}

// transitionPendingAt reports whether the marker is still in the state from which the transition to
// Next began. In any other state, a person moved it afterwards, and the marker wins.
func (r *Record) transitionPendingAt(marker State) bool {
	n := len(r.Transitions)
	return n == 0 || r.Transitions[n-1].To != r.Next || r.Transitions[n-1].From == marker
}

// InterpretMarker returns the state of a live operation whose marker was not watched. It is the
// next state of the record if a crash interrupted that transition. Otherwise it is the state of the
// marker, unless no manual move leads there from the recorded state: such a move has no meaning, as
// while a daemon runs, and must be undone.
func InterpretMarker(rec *Record, marker State) State {
	if marker == rec.Status || marker == rec.Next {
		return marker
	}
	if rec.Next.Live() && rec.transitionPendingAt(marker) {
		return rec.Next
	}
	if _, ok := ManualMove(rec.Status, marker); ok {
		return marker
	}
	if recordedFirst[marker] {
		return rec.Status
	}
	if slices.ContainsFunc(transitions, func(t Transition) bool { return t.From == rec.Status && t.To == marker }) {
		return marker
	}
	return rec.Status
}

// recordedFirst are the states that are recorded before the marker is renamed, because they come
// with data.
var recordedFirst = map[State]bool{Scheduled: true, FailedRetryable: true, WaitingApproval: true, Trailing: true}

func interpretWithoutRecord(markers []State, known bool, foreignGone func() (bool, error)) Verdict {
	if len(markers) == 0 {
		return Nothing
	}
	if known {
		return Orphan
	}
	gone, err := foreignGone()
	switch {
	case err != nil:
		return LeaveAlone
	case gone:
		return ForeignGone
	}
	return Foreign
}

// ChooseMarker picks the marker to keep if there are several: the only one whose first line is the
// time of the submit, else the marker in the record, else the newest to which a move leads. It is for a
// start, when no daemon knows which marker was its own.
func (o *Owner) ChooseMarker(id ID, states []State, rec *Record) State {
	if made := o.madeAtSubmit(id, states, rec); len(made) == 1 {
		return made[0]
	}
	if rec.Next != "" && slices.Contains(states, rec.Next) {
		return rec.Next
	}
	if slices.Contains(states, rec.Status) {
		return rec.Status
	}
	meant := func(state State) bool { return InterpretMarker(rec, state) == state }
	some := slices.ContainsFunc(states, meant)
	var newest State
	var best fs.FileInfo
	for _, state := range states {
		if some && !meant(state) {
			continue
		}
		info, err := o.jobs.Lstat(MarkerName(id, state))
		if err == nil && (best == nil || info.ModTime().After(best.ModTime())) {
			newest, best = state, info
		}
	}
	return newest
}

// madeAtSubmit returns the states whose marker begins with the time of the submit, which a marker
// keeps through all renames.
func (o *Owner) madeAtSubmit(id ID, states []State, rec *Record) (made []State) {
	for _, state := range states {
		stamp, err := o.Stamp(MarkerName(id, state))
		if err == nil && stamp.At.UnixMicro() == rec.CreatedAt.UnixMicro() {
			made = append(made, state)
		}
	}
	return made
}

// ForeignGone reports whether the program that keeps a marker without a record is gone: its process
// does not exist, or is younger than the marker, so the PID was reused. A marker made in another
// PID namespace ({"pid_namespace":"pid:[N]"} on its second line) never counts as gone, because its
// process is not visible.
func (j *jobsFolder) ForeignGone(id ID, file string) (bool, error) {
	stamp, err := j.Stamp(file)
	if err != nil {
		return false, err
	}
	if other := stamp.pidNamespace(); other != "" && other != machine.PIDNamespace() {
		return false, nil
	}
	if id.PID() == machine.PID {
		return true, nil
	}
	started, alive, err := machine.ProcessStart(id.PID())
	if err != nil {
		return false, err
	}
	return !alive || started.After(stamp.At.Add(startSlack)), nil
}

// StartUnrecorded reports whether an operation is in the state that the first start of a handler
// leaves: the marker is running, and the record does not have the start yet. Only a caller that
// knows the job can distinguish this from a marker that a person moved.
func StartUnrecorded(rec *Record, marker State) bool {
	return marker == Running && rec.Status == Queued && rec.Next == "" && rec.Run == 0 && rec.Starts == 0
}

// RecordStart records the start of the run at the given time in such a record.
func (r *Record) RecordStart(at time.Time) error {
	if at.Before(r.Since()) {
		at = r.Since() // the clock was set back
	}
	if err := r.Apply(Queued, CauseStart, at); err != nil {
		return err
	}
	r.Run, r.Starts, r.StartedAt = 1, 1, &at
	return nil
}

// MarkerMovedAt returns when the marker of an operation was created or last renamed.
func (o *Owner) MarkerMovedAt(id ID, marker State) (time.Time, error) {
	at, err := o.nameChangedAt(MarkerName(id, marker))
	if err != nil {
		return time.Time{}, fmt.Errorf("stat the marker of %s: %w", id, err)
	}
	return at, nil
}

// TookBack reports whether the start of an operation is in the journal, and the replay has taken it back.
func (j *OwnerJournal) TookBack(id ID) bool {
	_, is := j.takenBack.Load(id)
	return is
}

// takeBackStart takes a start back whose work has not begun, so that no run has died: the daemon died before it had
// made the marker, or moved it. A step keeps its start, which is a part of its status.
func (j *OwnerJournal) takeBackStart(r *replayed) error {
	n := len(r.last.Transitions)
	if !r.late || r.last.Status != Running || n == 0 || r.last.Transitions[n-1].Cause != CauseStart {
		return nil
	}
	markers, err := j.markersOf(r.last.ID)
	if err != nil || r.judge(markers, false) == commit.Leave {
		return err
	}
	rec, err := decodeRecord("change in the journal", r.last.ID, r.last.text)
	if err != nil || len(rec.Steps) > 0 {
		return nil //nolint:nilerr // the start reports a record that cannot be read
	}
	rec.transit(Running, Queued, CauseInterrupted, j.owner.options.Now())
	rec.LSN = r.last.number
	r.last.text, err = marshalRecord(rec)
	r.last.Status, r.last.Transitions, r.edited = rec.Status, rec.Transitions, true
	j.takenBack.Store(rec.ID, true)
	return err
}

// markersOf returns the markers of an operation.
func (j *OwnerJournal) markersOf(id ID) (markers []commit.Marker, err error) {
	sight, err := j.owner.ObserveAll(id)
	if err != nil {
		return nil, err
	}
	for _, there := range sight.States {
		at, err := j.owner.nameChangedAt(MarkerName(id, there))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		markers = append(markers, commit.Marker{State: string(there), Changed: at})
	}
	return markers, nil
}
