package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
)

func TestInterpret(t *testing.T) {
	t.Parallel()
	var (
		none    []State
		one     = []State{Running}
		two     = []State{Running, Paused}
		live    = &Record{Status: Running}
		missing = fmt.Errorf("read the record: %w", fs.ErrNotExist)
		denied  = fmt.Errorf("read the record: %w", fs.ErrPermission)
		newer   = fmt.Errorf("read the record: %w", ErrNewerVersion)
		link    = fmt.Errorf("read the record: %w", files.ErrIrregular)
		corrupt = fmt.Errorf("read the record: %w", &CorruptError{"x", "torn"})
		ioError = errors.New("input/output error")
		next    = func(to State) *Record { return &Record{Status: Running, Next: to} }
		ended   = func(in State) *Record { return &Record{Status: in} }
	)
	gone := func(answer bool, err error) func() (bool, error) { return func() (bool, error) { return answer, err } }
	unasked := func() (bool, error) {
		t.Error("asked for the program of an operation that has a record, or is ours")
		return false, nil
	}
	for _, test := range []struct {
		name    string
		markers []State
		rec     *Record
		err     error
		known   bool
		gone    func() (bool, error)
		want    Verdict
	}{
		{"marker and live record without next", one, live, nil, true, unasked, Agree},
		{"marker moved manually while no daemon ran", one, ended(Queued), nil, true, unasked, Agree},
		{"marker and next elsewhere", one, next(Queued), nil, true, unasked, RollForward},
		{"marker and next, renamed already", one, next(Running), nil, true, unasked, Agree},
		{"marker and completed record", one, ended(Completed), nil, true, unasked, Ended},
		{"marker and cancelled record", one, ended(Cancelled), nil, true, unasked, Ended},
		{"marker and failed record", one, ended(Failed), nil, false, unasked, Ended},
		{"two markers and terminal record", two, ended(Failed), nil, true, unasked, Ended},
		{"marker and unreadable record", one, nil, corrupt, true, unasked, Unreadable},
		{"two markers and unreadable record", two, nil, corrupt, true, unasked, Unreadable},
		{"unreadable record alone", none, nil, corrupt, true, unasked, Nothing},
		{"marker without record, program lives", one, nil, missing, false, gone(false, nil), Foreign},
		{"marker without record, program gone", one, nil, missing, false, gone(true, nil), ForeignGone},
		{"marker without record, program unknown", one, nil, missing, false, gone(false, ioError), LeaveAlone},
		{"marker of ours without record", one, nil, missing, true, unasked, Orphan},
		{"two markers without record", two, nil, missing, false, gone(false, nil), Foreign},
		{"marker and record without permission", one, nil, denied, true, unasked, LeaveAlone},
		{"marker and newer record", one, nil, newer, true, unasked, LeaveAlone},
		{"marker and a link for a record", one, nil, link, true, unasked, LeaveAlone},
		{"marker and read error", one, nil, ioError, true, unasked, LeaveAlone},
		{"no marker and read error", none, nil, ioError, true, unasked, LeaveAlone},
		{"no marker and newer record", none, nil, newer, true, unasked, LeaveAlone},
		{"live record without marker", none, live, nil, true, unasked, Missing},
		{"live record with next without marker", none, next(Queued), nil, true, unasked, Missing},
		{"two markers and live record", two, live, nil, true, unasked, TwoMarkers},
		{"two markers and next", two, next(Paused), nil, true, unasked, TwoMarkers},
		{"terminal record alone", none, ended(Completed), nil, true, unasked, Nothing},
		{"neither", none, nil, missing, true, unasked, Nothing},
	} {
		if got := Interpret(test.markers, test.rec, test.err, test.known, test.gone); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestChooseMarker(t *testing.T) {
	t.Parallel()
	o := own(t)
	id := submit(t, o.Tree).ID
	made := testTime.Add(time.Hour)
	check(t, o.RestoreMarker(id, Paused, testTime))
	check(t, o.RestoreMarker(id, Running, made))
	for i, state := range []State{Paused, Running, Queued} { // the queued one is the newest
		age(t, filepath.Join(o.JobsDir(), MarkerName(id, state)), time.Duration(3-i)*time.Hour)
	}
	all := []State{Queued, Running, Paused}
	for _, test := range []struct {
		name string
		rec  Record
		want State
	}{
		{"the record's state", Record{Status: Paused}, Paused},
		{"the next one", Record{Status: Paused, Next: Running}, Running},
		{"the next one is not there", Record{Status: Paused, Next: FailedManual}, Paused},
		{"the newest", Record{Status: Scheduled}, Queued},
		{"the newest, without a record", Record{}, Queued},
		{"the only one of that submit", Record{Status: Paused, CreatedAt: made}, Running},
	} {
		if got := o.ChooseMarker(id, all, &test.rec); got != test.want {
			t.Errorf("%s: %s stays, want %s", test.name, got, test.want)
		}
	}
	check(t, os.Remove(filepath.Join(o.JobsDir(), MarkerName(id, Queued))))
	if got := o.ChooseMarker(id, all, &Record{}); got != Running {
		t.Errorf("when the newest went meanwhile %s stays", got)
	}
	// A rename that the record does not have yet, beside a marker that a person made.
	check(t, o.RestoreMarker(id, Trailing, testTime))
	for _, of := range []struct{ recorded, want State }{{Queued, Running}, {Trailing, Trailing}} {
		if got := o.ChooseMarker(id, []State{Running, Trailing}, &Record{Status: of.recorded}); got != of.want {
			t.Errorf("beside a record that is %s, %s stays, want %s", of.recorded, got, of.want)
		}
	}
}

func TestForeignGone(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	living := start(t, "wait")
	living.line(t)
	dead := start(t, "wait")
	dead.line(t)
	dead.kill(t)
	now, old := time.Now().Format(StampFormat), time.Now().Add(-time.Hour).Format(StampFormat)
	elsewhere := "\n" + `{"pid_namespace":"pid:[1]"}` + "\n"
	here := "\n" + `{"pid_namespace":"` + machine.PIDNamespace() + `"}` + "\n"
	for _, test := range []struct {
		name    string
		pid     int
		content string
		want    bool
	}{
		{"living", living.cmd.Process.Pid, now, false},
		{"living, made by touch", living.cmd.Process.Pid, "", false},
		{"living, in our namespace", living.cmd.Process.Pid, now + here, false},
		{"living, younger than the marker", living.cmd.Process.Pid, old, true},
		{"younger, in our namespace", living.cmd.Process.Pid, old + here, true},
		{"younger, in another namespace", living.cmd.Process.Pid, old + elsewhere, false},
		{"dead", dead.cmd.Process.Pid, now, true},
		{"dead, in another namespace", dead.cmd.Process.Pid, now + elsewhere, false},
		{"our own PID without a record", os.Getpid(), now, true},
		{"PID 0", 0, now, true},
		{"a PID that no system gives", 1<<32 - 1, now, true},
	} {
		id := foreignID(t, test.pid)
		put(t, tree, test.content, jobsDir, MarkerName(id, Running))
		if gone, err := tree.ForeignGone(id, MarkerName(id, Running)); gone != test.want || err != nil {
			t.Errorf("%s: gone %t, %v", test.name, gone, err)
		}
	}
	if gone, err := tree.ForeignGone(foreignID(t, 2), "nothing"); gone || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a marker that went meanwhile: gone %t, %v", gone, err)
	}
}

func TestInterpretMarker(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	for name, c := range map[string]struct {
		status, next State
		last         PastTransition
		marker, want State
	}{
		"as it is":                       {Running, "", PastTransition{}, Running, Running},
		"a pause by hand":                {Running, "", PastTransition{}, Paused, Paused},
		"a transition without its write": {Paused, "", PastTransition{}, Queued, Queued},
		"nonsense":                       {Running, "", PastTransition{}, Scheduled, Running},
		"nonsense after a start": {
			Running, Running,
			PastTransition{Queued, Running, CauseStart, at},
			Scheduled, Running,
		},
		"cut off": {Running, Running, PastTransition{
			Queued, Running, CauseStart,
			at,
		}, Queued, Running},
		"moved since":              {Running, Running, PastTransition{Queued, Running, CauseStart, at}, Paused, Paused},
		"nothing leads there":      {Queued, "", PastTransition{}, Trailing, Queued},
		"the record would name it": {Running, "", PastTransition{}, WaitingApproval, Running},
	} {
		rec := &Record{Status: c.status, Next: c.next, Transitions: []PastTransition{c.last}}
		if got := InterpretMarker(rec, c.marker); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
