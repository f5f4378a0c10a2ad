package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
)

// found is what a start finds of one operation: its marker, the fate of its command, and a request.
type found struct {
	marker  statefs.State
	work    string
	request statefs.Action // "" for none
}

// The fate of the command of the run in the record.
const (
	lives1   = "lives"               // held by a keeper
	ended    = "has ended"           // its keeper knows how
	reported = "has left a report"   // its keeper is gone
	nothing  = "is gone"             // with its keeper, and no exit report exists
	stale    = "is gone, old report" // the exit report is of another run
)

// outcome is the state after the start.
type outcome struct {
	state statefs.State
	run   int
	first bool // the process of the first run continues
}

// makes is the decision table of a start for commands.
func (f found) makes() outcome {
	if f.marker == statefs.Scheduled {
		f.marker = statefs.Running
	}
	cutOff := f.work == nothing || f.work == stale
	switch {
	case f.marker != statefs.Queued && (f.work == ended || f.work == reported):
		return outcome{statefs.Failed, 1, false} // the end stays, whatever was requested since
	case f.request == statefs.Cancel:
		return outcome{state: statefs.Cancelled}
	case f.marker == statefs.Queued || f.marker == statefs.Running && cutOff:
		if f.request == statefs.Pause {
			return outcome{state: statefs.Paused} // before or after its second run started
		}
		return outcome{statefs.Running, 2, false}
	case f.marker == statefs.Paused && f.request == statefs.Resume && cutOff:
		return outcome{statefs.Running, 2, false}
	case f.marker == statefs.Paused && f.request != statefs.Resume, f.request == statefs.Pause:
		return outcome{statefs.Paused, 1, !cutOff}
	}
	return outcome{statefs.Running, 1, true}
}

// A start handles every combination of marker, command, exit report and request.
func TestStartWithEveryCombination(t *testing.T) {
	t.Parallel()
	// This move corresponds to no request and is undone; the operation is running all the same.
	const nonsense = statefs.Scheduled
	for name, works := range map[string][]string{
		"keeper lives":   {lives1, ended},
		"keeper is gone": {reported, nothing, stale},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := prepareKept(t, allKept)
			k.start()
			cases := make(map[statefs.ID]found)
			for _, marker := range []statefs.State{statefs.Queued, statefs.Running, statefs.Paused, nonsense} {
				for _, work := range works {
					for _, request := range []statefs.Action{"", statefs.Pause, statefs.Resume, statefs.Cancel} {
						cases[k.submit("script", script("echo $$; exec sleep 1000"))] = found{marker, work, request}
					}
				}
			}
			pids := k.settle(cases)
			k.leave()
			k.spoil(cases, pids)
			k.start()
			for id, f := range cases {
				want := f.makes()
				what := fmt.Sprintf("marker %s, command %s, request %q", f.marker, f.work, f.request)
				if want.state.Terminal() {
					if rec := k.awaitEnd(id); rec.Status != want.state || want.run > 0 && rec.Run != want.run {
						t.Errorf("%s: ended as %s in run %d, want %+v", what, rec.Status, rec.Run, want)
					}
				} else {
					k.awaitState(id, want.state)
					k.poll(what+": its record", func() bool {
						rec, err := k.tree.ReadRecord(id)
						return err == nil && (want.run == 0 || rec.Run == want.run)
					})
				}
				if lives(pids[id]) != want.first {
					t.Errorf("%s: the process of the first run lives: %t, want %t", what, !want.first, want.first)
				}
				if want.first {
					state := map[statefs.State]string{statefs.Running: "S", statefs.Paused: "T"}[want.state]
					k.poll(what+": the process is in state "+state,
						func() bool { return processState(t, strconv.Itoa(pids[id])) == state })
				}
				k.poll(what+": no request is left", func() bool {
					return f.request == "" || want.state.Terminal() || !k.exists(statefs.RequestName(id, f.request))
				})
				if _, err := os.Stat(filepath.Join(k.dir, statefs.ExitName(id, ""))); want.state != statefs.Failed &&
					!os.IsNotExist(err) {
					t.Errorf("%s: an exit report is left: %v", what, err)
				}
			}
		})
	}
}

// settle waits until every command runs, pauses each operation, resumes the operations that must run,
// and returns the processes. No request is left.
func (k *kept) settle(cases map[statefs.ID]found) map[statefs.ID]int {
	k.t.Helper()
	pids := make(map[statefs.ID]int)
	for id := range cases {
		k.awaitLog(id, "\n")
		first, _, _ := strings.Cut(k.log(id), "\n")
		pid, err := strconv.Atoi(first)
		must(k.t, err)
		pids[id] = pid
		k.touch(id, statefs.Pause)
	}
	for id := range cases {
		k.awaitState(id, statefs.Paused)
	}
	for id, f := range cases {
		if f.marker == statefs.Running || f.marker == statefs.Scheduled {
			k.touch(id, statefs.Resume)
			k.awaitState(id, statefs.Running)
		}
	}
	k.awaitNothingTaken()
	return pids
}

// spoil changes the storage as the cases require, while no daemon runs.
func (k *kept) spoil(cases map[statefs.ID]found, pids map[statefs.ID]int) {
	k.t.Helper()
	gone := false
	for id, f := range cases {
		if f.marker == statefs.Queued {
			k.mv(statefs.MarkerName(id, statefs.Paused), statefs.MarkerName(id, statefs.Queued))
		}
		if f.marker == statefs.Scheduled {
			k.mv(statefs.MarkerName(id, statefs.Running), statefs.MarkerName(id, statefs.Scheduled))
		}
		if f.request != "" {
			k.touch(id, f.request)
		}
		if f.work == ended || f.work == reported {
			must(k.t, unix.Kill(pids[id], unix.SIGKILL))
			k.poll("the exit report", func() bool {
				_, err := keeper.ReadReport(k.dir, statefs.ExitName(id, ""))
				return err == nil
			})
		}
		gone = gone || f.work == nothing
	}
	if !gone {
		return
	}
	for _, pid := range k.keepers() {
		must(k.t, unix.Kill(pid, unix.SIGKILL))
	}
	for id, f := range cases {
		k.poll("the command dies with its keeper", func() bool { return !lives(pids[id]) })
		if f.work == stale {
			report := fmt.Sprintf(`{"version":1,"id":"%s","run":7,"code":0,"ended_at":"2026-11-26T13:07:00Z"}`, id)
			must(k.t, os.WriteFile(filepath.Join(k.dir, statefs.ExitName(id, "")), []byte(report), 0o600))
		}
	}
}
