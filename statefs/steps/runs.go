package steps

import (
	"slices"
	"strconv"
	"strings"
)

// maxEarlierRuns bounds how many earlier runs a step keeps; the oldest are dropped. The record is
// written at each change, and a step may be retried very often.
const maxEarlierRuns = 50

// EarlierRun is a run of a step before its last one.
type EarlierRun struct {
	// Run is the number of the run in the operation.
	Run int `json:"run"`
	// LogFrom and LogTo are where its output begins and ends in the log of the step, in bytes.
	LogFrom int64 `json:"log_from,omitempty"`
	LogTo   int64 `json:"log_to,omitempty"`
}

// Begin records that a run of the step begins at a position of its log, and moves the previous run
// to Earlier.
func (s *Step) Begin(run int, logFrom int64) {
	if s.Run > 0 && s.StartedAt != nil {
		to := s.LogTo
		if to < s.LogFrom || to == 0 { // the end of an interrupted run was not recorded
			to = logFrom
		}
		earlier := slices.Concat(s.Earlier, []EarlierRun{{s.Run, s.LogFrom, to}}) // copies share the old slice
		s.Earlier = earlier[max(len(earlier)-maxEarlierRuns, 0):]
	}
	s.Run, s.LogFrom, s.LogTo = run, logFrom, 0
}

// ClearRuns removes the runs and their log positions from a step that was copied from another
// operation.
func (s *Step) ClearRuns() {
	s.Run, s.LogFrom, s.LogTo, s.Log, s.Earlier = 0, 0, 0, "", nil
}

// Runs returns the numbers of the known runs of a step, the oldest first; none if it has not begun.
func (s *Step) Runs() []int {
	var runs []int
	for _, e := range s.Earlier {
		runs = append(runs, e.Run)
	}
	if s.Run > 0 {
		runs = append(runs, s.Run)
	}
	return runs
}

// OutputOf is Output for any run, 0 for the last one; false if there is no run with that number.
func (s *Step) OutputOf(run int, size int64) (from, to int64, ok bool) {
	if run == 0 || run == s.Run {
		from, to = s.Output(size)
		return from, to, true
	}
	for _, e := range s.Earlier {
		if e.Run == run {
			from = min(max(e.LogFrom, 0), size)
			return from, min(max(e.LogTo, from), size), true
		}
	}
	return 0, 0, false
}

// DescribeRuns lists the runs in words, for messages.
func DescribeRuns(runs []int) string {
	var words []string
	for _, run := range runs {
		words = append(words, strconv.Itoa(run))
	}
	switch n := len(words); n {
	case 0:
		return "it has not begun"
	case 1:
		return "its only run is " + words[0]
	default:
		return "its runs are " + strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
}
