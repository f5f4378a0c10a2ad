package statefs

import (
	"errors"
	"io/fs"
	"os"
	"slices"
)

// Verdict says what has to be done where the marker and the record of an operation are compared.
type Verdict string

// The verdicts, one for each row of the table in docs/files.md.
const (
	// Agree: the marker says the state.
	Agree Verdict = "agree"
	// RollForward: the record was written and the rename was cut off; carry it out.
	RollForward Verdict = "roll_forward"
	// Ended: the record is terminal and the removal of the marker was cut off.
	Ended Verdict = "ended"
	// Trails: the record is that of a completed operation whose optional steps go on.
	Trails Verdict = "trails"
	// Unreadable: the record exists and cannot be understood.
	Unreadable Verdict = "unreadable"
	// Foreign: a program that the daemon did not start keeps this marker; it lives.
	Foreign Verdict = "foreign"
	// ForeignGone: the program that kept this marker is gone.
	ForeignGone Verdict = "foreign_gone"
	// Orphan: a marker of ours without a record.
	Orphan Verdict = "orphan"
	// Missing: a live record without a marker, which means cancelled after the second look.
	Missing Verdict = "missing"
	// TwoMarkers: somebody made a second marker; one of them goes.
	TwoMarkers Verdict = "two_markers"
	// LeaveAlone: the record could not be asked for, so nothing is known.
	LeaveAlone Verdict = "leave_alone"
	// Nothing: there is neither a marker nor a live record.
	Nothing Verdict = "nothing"
)

// Judge compares what was found of one operation. It does no I/O. recordErr is the error of reading the record. foreignGone is
// asked only for a marker without a record, and tells whether the program in the ID is gone; known says that the ID was given
// out by this storage.
func Judge(markers []State, rec *Record, recordErr error, known bool, foreignGone func() (bool, error)) Verdict {
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
		return judgeWithoutRecord(markers, known, foreignGone)
	case rec.Status.Terminal():
		if len(markers) == 0 {
			return Nothing
		}
		if rec.Trailing {
			return Trails
		}
		return Ended
	case len(markers) == 0:
		return Missing
	case len(markers) > 1:
		return TwoMarkers
	case rec.Next != "" && rec.Next != markers[0] && rec.cutOff(markers[0]):
		return RollForward
	}
	return Agree
}

// cutOff reports whether the marker still is where the transition to Next began. Anywhere else it was moved by hand afterwards, and
// then the marker wins.
func (r *Record) cutOff(marker State) bool {
	n := len(r.Transitions)
	return n == 0 || r.Transitions[n-1].To != r.Next || r.Transitions[n-1].From == marker
}

// Meant returns the state of a live operation whose marker nobody has watched: the next one of its record when a crash cut the transition off, and
// otherwise that of the marker, unless nothing leads there from the one in the record. Such a move by hand means nothing, as it does while
// a daemon runs, and is to be put back.
func Meant(rec *Record, marker State) State {
	if marker == rec.Status || marker == rec.Next {
		return marker
	}
	if rec.Next.Live() && rec.cutOff(marker) {
		return rec.Next
	}
	if _, ok := HandMove(rec.Status, marker); ok {
		return marker
	}
	if recordedFirst[marker] {
		return rec.Status
	}
	for _, to := range nextState[rec.Status] {
		if to == marker {
			return marker
		}
	}
	return rec.Status
}

// recordedFirst are the states that a record names before a marker has them, since they come with data.
var recordedFirst = map[State]bool{Scheduled: true, FailedRetryable: true, WaitingApproval: true, Trailing: true}

func judgeWithoutRecord(markers []State, known bool, foreignGone func() (bool, error)) Verdict {
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

// Surviving picks the marker that stays when there are several: the only one that was made at the submit, by its first line, else the
// one the record names, else the newest. It is for a start, when no daemon knows which marker was its own.
func (o *Owner) Surviving(id ID, states []State, rec *Record) State {
	if made := o.madeAtSubmit(id, states, rec); len(made) == 1 {
		return made[0]
	}
	if rec.Next != "" && slices.Contains(states, rec.Next) {
		return rec.Next
	}
	if slices.Contains(states, rec.Status) {
		return rec.Status
	}
	var newest State
	var best fs.FileInfo
	for _, state := range states {
		info, err := o.jobs.Lstat(MarkerName(id, state))
		if err == nil && (best == nil || info.ModTime().After(best.ModTime())) {
			newest, best = state, info
		}
	}
	return newest
}

// madeAtSubmit returns the states whose marker begins with the time of the submit, which a marker keeps through all renames.
func (o *Owner) madeAtSubmit(id ID, states []State, rec *Record) (made []State) {
	for _, state := range states {
		stamp, err := o.Stamp(MarkerName(id, state))
		if err == nil && stamp.At.UnixMicro() == rec.CreatedAt.UnixMicro() {
			made = append(made, state)
		}
	}
	return made
}

// ForeignGone reports whether the program that keeps a marker without a record is gone: its process does not exist, or is
// younger than the marker, which means that another program was given the same PID. A marker that says it was made in another
// PID namespace ({"pid_namespace":"pid:[N]"} on its second line) is never gone: we cannot see its process.
func (t *Tree) ForeignGone(id ID, file string) (bool, error) {
	stamp, err := t.Stamp(file)
	if err != nil {
		return false, err
	}
	if other := stamp.pidNamespace(); other != "" && other != pidNamespace() {
		return false, nil
	}
	if id.PID() == os.Getpid() {
		return true, nil
	}
	started, alive, err := processStart(id.PID())
	if err != nil {
		return false, err
	}
	return !alive || started.After(stamp.At.Add(startSlack)), nil
}
