package statefs

import (
	"testing"
	"time"
)

// TestRecordIsOfThisMachineAndBoot: on another machine or after a reboot, nothing of an old run is
// alive.
func TestRecordIsOfThisMachineAndBoot(t *testing.T) {
	t.Parallel()
	here := ThisMachine()
	if here.Boot == "" {
		t.Skip("this system names no boot: only Linux does")
	}
	for name, test := range map[string]struct {
		host, boot string
		want       bool
	}{
		"here":               {here.Host, here.Boot, true},
		"started again":      {here.Host, "00000000-0000-0000-0000-000000000000", false},
		"another machine":    {"elsewhere", "11111111-1111-1111-1111-111111111111", false},
		"image of a machine": {"elsewhere", here.Boot, false},
		"never begun":        {"", "", false},
	} {
		if got := (&Record{Host: test.host, Boot: test.boot}).RanOn(here); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

// TestPausedTimeAddsUp: the paused time is the sum of all pauses.
func TestPausedTimeAddsUp(t *testing.T) {
	t.Parallel()
	begin := time.Date(2025, 11, 26, 13, 0, 0, 0, time.UTC)
	rec := &Record{CreatedAt: begin}
	rec.transit("", Queued, CauseSubmit, begin)
	state := Queued
	for _, step := range []struct {
		cause Cause
		after time.Duration
	}{
		{CauseStart, time.Second},
		{CausePause, 2 * time.Second},
		{CauseResume, 12 * time.Second},
		{CausePause, 20 * time.Second},
		{CauseResume, 25 * time.Second},
		{CauseDone, 30 * time.Second},
	} {
		if err := rec.Apply(state, step.cause, begin.Add(step.after)); err != nil {
			t.Fatal(err)
		}
		state = rec.Status
	}
	if rec.PausedSeconds != 15 {
		t.Errorf("paused for %v s, want 15", rec.PausedSeconds)
	}
}
