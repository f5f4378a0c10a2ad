package steps

import (
	"slices"
	"strconv"
	"strings"
)

// mostEarlier bounds how many earlier runs a step keeps: the last ones. A record is written at each change, and a step may be tried very often.
const mostEarlier = 50

// EarlierRun is a run of a step before its last one.
type EarlierRun struct {
	// Run is its number, of the operation's runs.
	Run int `json:"run"`
	// LogFrom and LogTo are where it begins and ends in the log of the step, in bytes.
	LogFrom int64 `json:"log_from,omitempty"`
	LogTo   int64 `json:"log_to,omitempty"`
}

// Begin notes that a step begins a run at a place of its log, and keeps where the one before it is there.
func (s *Step) Begin(run int, logFrom int64) {
	if s.Run > 0 && s.StartedAt != nil {
		to := s.LogTo
		if to < s.LogFrom || to == 0 { // nobody noted the end of one that was cut off
			to = logFrom
		}
		earlier := slices.Concat(s.Earlier, []EarlierRun{{s.Run, s.LogFrom, to}}) // copies of the step have the old ones
		s.Earlier = earlier[max(len(earlier)-mostEarlier, 0):]
	}
	s.Run, s.LogFrom, s.LogTo = run, logFrom, 0
}

// NewHere takes from a step what is of the operation that it was copied from: its runs and where they are in the log.
func (s *Step) NewHere() {
	s.Run, s.LogFrom, s.LogTo, s.Log, s.Earlier = 0, 0, 0, "", nil
}

// Runs returns the numbers of the runs of a step that are known, the first one first; none when it has not begun.
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

// OutputOf is Output of one of the runs, 0 for the last one; false when there is none with that number.
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

// SayRuns says in words which runs there are, for messages.
func SayRuns(runs []int) string {
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
