package statefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestSwitchOfASchedule: a file that any user may create disables the schedule of a job; removing
// it enables the schedule.
func TestSwitchOfASchedule(t *testing.T) {
	t.Parallel()
	o := own(t)
	const endpoint = "media-nightly"
	file := filepath.Join(o.Dir(), schedulesDir, endpoint+scheduleDisabled)
	is := func(want bool) {
		t.Helper()
		if on, err := o.Schedules.Enabled(endpoint); err != nil || on != want {
			t.Errorf("switched on: %t, %v; want %t", on, err, want)
		}
	}
	is(true)
	for range 2 {
		check(t, o.Schedules.Enable(endpoint, false))
		is(false)
	}
	check(t, os.Remove(file))
	is(true)
	check(t, os.WriteFile(file, nil, 0o640))
	is(false)
	for range 2 {
		check(t, o.Schedules.Enable(endpoint, true))
		is(true)
	}
	for _, name := range []string{"", "../jobs/x", "A-b", "a/b"} {
		if err := o.Schedules.Enable(name, false); err == nil {
			t.Errorf("%q is an endpoint name", name)
		}
	}
}

func TestStateOfASchedule(t *testing.T) {
	t.Parallel()
	o := own(t)
	if _, err := o.Schedules.Read("a-b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing is known, and read: %v", err)
	}
	for _, text := range []string{`{"version":1}`, `{"version":1,"slot":"x"}`} {
		check(t, o.Schedules.Write("a-b", []byte(text)))
		if got, err := o.Schedules.Read("a-b"); err != nil || string(got) != text+"\n" {
			t.Errorf("read %q, %v; want %q", got, err, text)
		}
	}
	if err := o.Schedules.Write("../x", nil); err == nil {
		t.Error("a path is an endpoint name")
	}
}
