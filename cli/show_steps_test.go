package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

func TestStepsAreDrawn(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 11, 0, 0, 0, time.Local)
	seconds := func(s float64) *float64 { return &s }
	v := stepsView{
		steps: []steps.View{
			{
				Number: 1, Step: steps.Step{Name: "ingest", Status: steps.Succeeded, Retries: 2, ErrorMessage: "old"},
				Seconds: seconds(1.5),
			},
			{
				Number: 2, Step: steps.Step{Name: "tracks", Status: steps.Skipped, Reason: "no\x1b[2J tracks"},
				Needs: []string{"ingest"},
			},
			{Number: 3, Step: steps.Step{Name: "when", Status: steps.Skipped, Reason: "its condition does not hold"}},
			{Number: 4, Step: steps.Step{
				Name: "gate", Status: steps.Succeeded, ApprovedBy: "bert",
				ApprovedAt: &at,
			}, Approve: true},
			{Number: 5, Step: steps.Step{Name: "work", Status: steps.Running}, Seconds: seconds(75)},
			{Number: 6, Step: steps.Step{
				Name: "publish", Status: steps.FailedManual, ErrorCode: "exit_code",
				ErrorMessage: "exit code 77",
			}, Needs: []string{"gate", "work"}, Seconds: seconds(0.02)},
			{Number: 7, Step: steps.Step{Name: "last", Status: steps.Pending}, Approve: true},
			{Number: 8, Step: steps.Step{Name: "side", Status: steps.FailedRetryable, Optional: true, ErrorMessage: "busy"}},
		},
		acts:      []steps.ActionRecord{{Action: "skip", Step: "tracks", By: "anna"}},
		attention: &statefs.Attention{Commands: []string{"jobdir retry x", "jobdir cancel x"}},
		failed:    "publish", output: []string{"one", "\ttwo\x1b[2J"},
	}
	want := []string{
		"steps       4 of 7 done",
		"  ✓ 1 ingest   succeeded            1.5s  2 retries",
		"  → 2 tracks   skipped                 -  needs ingest; skipped by anna: no?[2J tracks",
		"  → 3 when     skipped                 -  skipped: its condition does not hold",
		"  ✓ 4 gate     succeeded               -  approved by bert at 2026-11-22 11:00:00.000",
		"  ▶ 5 work     running             1m15s",
		"  ✗ 6 publish  failed_manual        20ms  needs gate, work; exit_code: exit code 77",
		"  ○ 7 last     pending                 -  needs approval",
		"  ✗ 8 side     failed_retryable        -  optional; busy",
		"output      the last lines of step publish:",
		"  | one",
		"  |     two?[2J",
		"helps       jobdir retry x",
		"            jobdir cancel x",
	}
	if got := v.lines(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	v.colour = true
	got := v.lines()
	if !strings.HasPrefix(got[1], "  \x1b[32m✓ 1 ingest   succeeded       \x1b[0m  ") ||
		!strings.HasPrefix(got[6], "  \x1b[31m✗ 6 publish") {
		t.Errorf("with colours\n%q\n%q", got[1], got[6])
	}
}
