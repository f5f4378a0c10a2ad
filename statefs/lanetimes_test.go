package statefs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestTimesOfALane(t *testing.T) {
	t.Parallel()
	o := own(t)
	path := filepath.Join(o.Lanes.Dir(), "cookie.starts")
	if got := o.Lanes.Times("cookie", LaneStarts); got != nil {
		t.Errorf("%v", got)
	}
	first := time.Date(2026, 11, 22, 10, 0, 0, 123_456_789, time.FixedZone("", 3600))
	times := make([]time.Time, MaxLaneTimes+2)
	for i := range times {
		times[i] = first.Add(time.Duration(i) * time.Millisecond)
	}
	check(t, o.Lanes.SetTimes("cookie", LaneStarts, times))
	if got := o.Lanes.Times("cookie", LaneStarts); !slices.EqualFunc(got, times[2:], time.Time.Equal) {
		t.Errorf("%d times, want the last %d", len(got), MaxLaneTimes)
	}
	check(t, o.Lanes.SetTimes("cookie", LaneFailures, times[:1]))
	if files, odd, err := o.Lanes.List(); err != nil || len(files)+len(odd) > 0 {
		t.Errorf("notes are taken for control: %v %v %v", files, odd, err)
	}
	// The file after a manual edit or a crash.
	check(t, os.WriteFile(path, []byte("2026-11-22T10:00:00Z\nyesterday\n\n2026-11-22T10:00:01Z\n2026-11-2"), 0o640))
	if got := o.Lanes.Times("cookie", LaneStarts); len(got) != 2 || got[1].Sub(got[0]) != time.Second {
		t.Errorf("%v", got)
	}
	// A link is neither read nor followed.
	secret := filepath.Join(t.TempDir(), "secret")
	check(t, os.WriteFile(secret, []byte("2026-11-22T10:00:00Z\n"), 0o600))
	check(t, os.Remove(path))
	check(t, os.Symlink(secret, path))
	if got := o.Lanes.Times("cookie", LaneStarts); got != nil {
		t.Errorf("a link was read: %v", got)
	}
	check(t, o.Lanes.SetTimes("cookie", LaneStarts, times[:2]))
	if data, err := os.ReadFile(secret); err != nil || string(data) != "2026-11-22T10:00:00Z\n" {
		t.Errorf("a link was followed: %q %v", data, err)
	}
	if got := o.Lanes.Times("cookie", LaneStarts); len(got) != 2 {
		t.Errorf("%v", got)
	}
	for range 2 {
		check(t, o.Lanes.SetTimes("cookie", LaneStarts, nil))
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("an empty note is there: %v", err)
	}
}
