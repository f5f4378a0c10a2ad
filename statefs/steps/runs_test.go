package steps

import (
	"slices"
	"testing"
	"time"
)

// TestRunsOfAStep checks that the output of an earlier run is found by its number, however the run
// ended.
func TestRunsOfAStep(t *testing.T) {
	t.Parallel()
	at := time.Date(2025, 11, 26, 13, 0, 0, 0, time.UTC)
	s := &Step{Name: "split", Status: Pending}
	if runs := s.Runs(); len(runs) != 0 || DescribeRuns(runs) != "it has not begun" {
		t.Errorf("before it began its runs are %v", runs)
	}
	s.Begin(2, 10)
	s.StartedAt, s.LogTo = &at, 25
	if DescribeRuns(s.Runs()) != "its only run is 2" {
		t.Error(DescribeRuns(s.Runs()))
	}
	before := Clone([]Step{*s})
	s.Begin(5, 40)
	s.Begin(6, 60) // the previous run was interrupted, and its end was not recorded
	s.LogTo = 0
	s.Status = Running
	if runs := s.Runs(); !slices.Equal(runs, []int{2, 5, 6}) || DescribeRuns(runs) != "its runs are 2, 5 and 6" ||
		len(before[0].Earlier) != 0 {
		t.Errorf("its runs are %v", runs)
	}
	for run, want := range map[int][2]int64{0: {60, 70}, 2: {10, 25}, 5: {40, 60}, 6: {60, 70}} {
		if from, to, ok := s.OutputOf(run, 70); !ok || from != want[0] || to != want[1] {
			t.Errorf("run %d is from %d to %d, %v, want %v", run, from, to, ok, want)
		}
	}
	if from, to, ok := s.OutputOf(5, 50); !ok || from != 40 || to != 50 {
		t.Errorf("of a log that lost its end: %d to %d, %v", from, to, ok)
	}
	for _, run := range []int{1, 3, 7, -1} {
		if _, _, ok := s.OutputOf(run, 70); ok {
			t.Errorf("there is a run %d", run)
		}
	}
	for run := range 200 {
		s.Begin(7+run, int64(100+run))
	}
	if runs := s.Runs(); len(runs) != maxEarlierRuns+1 || runs[maxEarlierRuns] != 206 || runs[0] != 206-maxEarlierRuns {
		t.Errorf("of very many runs it keeps %v", runs)
	}
	s.ClearRuns()
	if len(s.Runs()) != 0 {
		t.Errorf("in another operation its runs are %v", s.Runs())
	}
}
