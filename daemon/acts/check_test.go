package acts

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

const job = `
group: media
name: film
params:
  path: {type: string, normalize: [trim], required: true}
  tries: {type: integer, default: 3, maximum: 9}
  note: {type: string}
handler: film
`

func definition(t *testing.T) *catalog.Definition {
	t.Helper()
	list, err := catalog.Parse("film.yaml", []byte(job))
	if err != nil {
		t.Fatal(err)
	}
	list[0].Steps = []*catalog.Step{
		{Name: "ingest", Outputs: []string{"count"}},
		{Name: "split"},
		{Name: "publish"},
		{Name: "extra", Optional: true},
	}
	return list[0]
}

// film is an operation that failed at its second step.
func film(t *testing.T) *statefs.Record {
	t.Helper()
	id, err := statefs.ParseID("media-film_2026-11-22_11-00-00_p1_r7")
	if err != nil {
		t.Fatal(err)
	}
	return &statefs.Record{ID: id, Run: 4, Params: json.RawMessage(`{"path":"/a","tries":3}`), Steps: []steps.Step{
		{Name: "ingest", Status: steps.Succeeded, Run: 3},
		{Name: "split", Status: steps.FailedManual, Run: 4, ErrorCode: "exit_code"},
		{Name: "publish", Status: steps.Pending},
		{Name: "extra", Status: steps.Pending, Optional: true},
	}}
}

func TestMissingArgsAreFilledIn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		ask  statefs.Action
		args statefs.Args
		want string
	}{
		{statefs.Retry, statefs.Args{}, "split"},
		{statefs.Retry, statefs.Args{Step: "ingest", By: "anna"}, "ingest"},
		{statefs.Retry, statefs.Args{Step: "split", Run: 4}, "split"},
		{statefs.Skip, statefs.Args{Reason: "no tracks"}, "split"},
		{statefs.Skip, statefs.Args{Step: "publish"}, "publish"},
	} {
		got, err := Check(nil, film(t), statefs.FailedManual, test.ask, test.args)
		if err != nil || got.Step != test.want || got.Run != 4 || got.By != test.args.By || got.Reason != test.args.Reason {
			t.Errorf("%s %+v: %+v, %v", test.ask, test.args, got, err)
		}
	}
	for _, ask := range []statefs.Action{statefs.Approve, statefs.Reject} {
		if got, err := Check(nil, film(t), statefs.WaitingApproval, ask, statefs.Args{}); err != nil ||
			got.Step != "split" || got.Run != 4 {
			t.Errorf("%s: %+v, %v", ask, got, err)
		}
	}
	plain := film(t)
	plain.Steps = nil
	if got, err := Check(nil, plain, statefs.FailedManual, statefs.Retry, statefs.Args{}); err != nil ||
		got.Step != "" || got.Run != 4 {
		t.Errorf("without steps: %+v, %v", got, err)
	}
}

// What is done has nothing to do again: no command is named that would be refused.
func TestSuccessIsNotRetried(t *testing.T) {
	t.Parallel()
	for result, hints := range map[statefs.Result]bool{
		statefs.Success: false, statefs.Partial: true,
		statefs.Failure: true, statefs.CancelledResult: true,
	} {
		rec := film(t)
		rec.Result = result
		if _, err := Check(definition(t), rec, statefs.Completed, statefs.Skip, statefs.Args{}); err == nil ||
			strings.Contains(err.Error(), "jobdir retry") != hints {
			t.Errorf("%s: %v", result, err)
		}
	}
}

func TestErrorNamesTheMember(t *testing.T) {
	t.Parallel()
	without := func(rec *statefs.Record) { rec.Steps = nil }
	for _, test := range []struct {
		state  statefs.State
		ask    statefs.Action
		args   statefs.Args
		change func(*statefs.Record)
		member string
		text   string
	}{
		{
			statefs.FailedManual, statefs.Skip,
			statefs.Args{Step: "slpit"},
			nil, "step",
			"there is no step 'slpit'; its steps are ingest, split, publish, extra",
		},
		{
			statefs.FailedManual, statefs.Skip,
			statefs.Args{Step: "ingest"},
			nil, "step",
			"is succeeded: there is nothing to skip",
		},
		{statefs.FailedManual, statefs.Skip, statefs.Args{Run: 3}, nil, "", "run 3 was meant, and it is at run 4 now"},
		{
			statefs.FailedManual, statefs.Retry,
			statefs.Args{Step: "publish"},
			nil, "step",
			"has not begun; the operation stands at step split",
		},
		{statefs.FailedManual, statefs.Retry, statefs.Args{Step: "split"}, without, "step", "has no steps"},
		{
			statefs.FailedManual, statefs.Retry,
			statefs.Args{Values: map[string]json.RawMessage{"params.path": json.RawMessage("1")}},
			nil, "values", "only a set",
		},
		{statefs.FailedManual, statefs.Skip, statefs.Args{}, without, "", "it has no steps"},
		{
			statefs.FailedManual, statefs.Approve,
			statefs.Args{},
			nil, "",
			"is failed_manual at step split and has no use for approve: no step of it waits for an approval; 'jobdir retry media-film",
		},
		{statefs.WaitingApproval, statefs.Retry, statefs.Args{}, nil, "", "'jobdir approve media-film"},
		{statefs.WaitingApproval, statefs.Approve, statefs.Args{Step: "publish"}, nil, "step", "step split does"},
		{statefs.Running, statefs.Skip, statefs.Args{}, nil, "", "is running at step split and has no use for skip"},
		{statefs.Running, statefs.Retry, statefs.Args{}, nil, "", "'jobdir pause media-film"},
		{statefs.Running, statefs.Set, statefs.Args{}, nil, "", "a value is set while it waits"},
		{statefs.Paused, statefs.Reject, statefs.Args{}, nil, "", "'jobdir resume media-film"},
		{statefs.Queued, statefs.Skip, statefs.Args{}, nil, "", "'jobdir pause media-film"},
		{statefs.Completed, statefs.Skip, statefs.Args{}, nil, "", "is completed and has no use for skip"},
		{statefs.Trailing, statefs.Skip, statefs.Args{Step: "extra"}, nil, "", "'jobdir cancel media-film"},
		{
			statefs.FailedManual, statefs.Skip,
			statefs.Args{Step: "extra"},
			func(rec *statefs.Record) { rec.Steps[3].Status = steps.Running }, "step", "is at work",
		},
		{
			statefs.FailedManual, statefs.Retry,
			statefs.Args{Step: "extra"},
			func(rec *statefs.Record) { rec.Steps[3].Status = steps.Running }, "step", "is at work",
		},
	} {
		rec := film(t)
		if test.change != nil {
			test.change(rec)
		}
		_, err := Check(definition(t), rec, test.state, test.ask, test.args)
		wrong, ok := errors.AsType[*RefusedError](err)
		if !ok || wrong.Member != test.member || !strings.Contains(wrong.Text, test.text) {
			t.Errorf("%s %s %+v: %v, want %q about %q", test.state, test.ask, test.args, err, test.text, test.member)
		}
	}
}

// A step that failed beside the others is retried and skipped whatever the operation does.
func TestFailedOptionalStep(t *testing.T) {
	t.Parallel()
	for _, state := range []statefs.State{statefs.Running, statefs.Trailing, statefs.WaitingApproval} {
		for _, ask := range []statefs.Action{statefs.Retry, statefs.Skip} {
			rec := film(t)
			rec.Steps[3].Status = steps.FailedManual
			if got, err := Check(nil, rec, state, ask, statefs.Args{Step: "extra"}); err != nil || got.Step != "extra" {
				t.Errorf("%s while %s: %+v, %v", ask, state, got, err)
			}
		}
	}
}

func TestRefusesOtherActionsAndLongText(t *testing.T) {
	t.Parallel()
	if _, err := Check(nil, film(t), statefs.Running, statefs.Pause, statefs.Args{}); err == nil {
		t.Error("a pause is no act")
	}
	_, err := Check(nil, film(t), statefs.FailedManual, statefs.Skip, statefs.Args{By: strings.Repeat("x", 200)})
	if wrong, ok := errors.AsType[*statefs.ArgsError](err); !ok || wrong.Member != "by" {
		t.Errorf("%v", err)
	}
}
