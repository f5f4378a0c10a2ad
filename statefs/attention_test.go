package statefs

import (
	"slices"
	"testing"

	"github.com/jobdir/jobdir/statefs/steps"
)

func TestAttention(t *testing.T) {
	t.Parallel()
	id, err := ParseID("media-film_2026-11-22_11-00-00_p1_r7")
	check(t, err)
	name := id.String()
	staged := func() *Record {
		return &Record{ID: id, Reason: "needs a person", Steps: []steps.Step{
			{Name: "ingest", Status: steps.Succeeded},
			{Name: "split", Status: steps.FailedManual, ErrorCode: "no_tracks", ErrorMessage: "it has no tracks"},
			{Name: "extra", Optional: true, Status: steps.Pending},
		}}
	}
	for _, test := range []struct {
		state    State
		rec      *Record
		message  string
		commands int
		sentence string
	}{
		{FailedManual, nil, "failed_manual", 2, "waits for a person: failed_manual; when that is mended, 'jobdir retry " +
			name + "' goes on, 'jobdir cancel " + name + "' ends it"},
		{
			FailedManual, &Record{ID: id, Reason: "crash_limit"}, "crash_limit", 2,
			"waits for a person: crash_limit; when that is mended, 'jobdir retry " + name + "' goes on, 'jobdir cancel " +
				name + "' ends it",
		},
		{
			FailedManual, &Record{ID: id, Reason: "crash_limit", Error: &Fault{Code: "exit_code", Message: "exit code 77"}},
			"exit code 77", 2, "",
		},
		{
			FailedManual, staged(), "it has no tracks", 4,
			"waits for a person at step 2 / 3 split: it has no tracks; when that is mended, 'jobdir retry " + name +
				"' goes on, 'jobdir skip " + name + " --reason TEXT' goes on without that step, 'jobdir cancel " + name +
				"' ends it",
		},
		{
			WaitingApproval, staged(), "an approval is needed", 2,
			"waits for an approval of step 2 / 3 split: 'jobdir approve " + name + "' lets it go on, 'jobdir reject " +
				name + "' ends it",
		},
		{WaitingApproval, nil, "waiting_approval", 2, "waits for an approval: 'jobdir approve " + name +
			"' lets it go on, 'jobdir reject " + name + "' ends it"},
	} {
		a := AttentionOf(id, test.state, test.rec)
		if a == nil || a.Message != test.message || len(a.Commands) != test.commands || test.sentence != "" &&
			a.Sentence(id) != test.sentence {
			t.Errorf("%s: %+v, %q", test.state, a, a.Sentence(id))
		}
	}
	if a := AttentionOf(id, FailedManual, staged()); a.Step != "split" || a.Number != 2 || a.Total != 3 ||
		a.ErrorCode != "no_tracks" ||
		!slices.Contains(a.Commands, "jobdir skip "+name+" --reason TEXT") {
		t.Errorf("%+v", a)
	}
	for _, state := range States() {
		if a := AttentionOf(id, state, staged()); (a != nil) != state.NeedsPerson() {
			t.Errorf("%s: %+v", state, a)
		}
	}
}
