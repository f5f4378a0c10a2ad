package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

const stepJobs = `
group: test
name: chain
params:
  path: {type: string, default: /a}
  big: {type: boolean, default: false}
steps:
  - {name: publish, needs: [split], run: [sh, -c, "echo publish"], milestone: published}
  - {name: ingest, run: [sh, -c, "echo ingest ${params.path} of step $JOBDIR_STEP; echo '{\"bytes\": 12}' > $JOBDIR_RESULT"], outputs: [bytes], milestone: ingested}
  - {name: shrink, needs: [ingest], when: "params.big", run: [echo, shrink]}
  - name: split
    needs: [ingest, shrink]
    items: {range: [1, 2]}
    run: [sh, -c, "echo part ${item} of ${steps.ingest.outputs.bytes}"]
  - {name: count, needs: [split], handler: count, outputs: [parts2]}
---
group: test
name: fails
params:
  how: {type: string, default: ok}
steps:
  - {name: first, run: [sh, -c, "echo one > $JOBDIR_ARTIFACTS/first.$JOBDIR_RUN"]}
  - name: second
    needs: [first]
    retry: {max_attempts: 2}
    env: {HOW: "${params.how}"}
    errors:
      - {match: "credential .* wrong", class: manual, code: credentials_invalid}
      - {match: "busy", class: retryable, code: provider_busy}
    run:
      - sh
      - -c
      - case $HOW in ok) ;; once) test -e $JOBDIR_ARTIFACTS/was && exit 0; touch $JOBDIR_ARTIFACTS/was; exit 75 ;;
        config) exit 78 ;; busy) echo provider busy; exit 1 ;; login) echo the credential x is wrong; echo bye; exit 75 ;; *) exit 3 ;; esac
  - {name: third, needs: [second], run: [echo, third]}
---
group: test
name: lacks
steps:
  - {name: only, run: [sh, -c, "true"], outputs: [x], retry: {max_attempts: 5}}
---
group: test
name: breaks
steps:
  - {name: only, run: [sh, -c, "exit 3"]}
---
group: test
name: large
steps:
  - {name: only, run: [sh, -c, "{ printf '{\"x\": \"'; head -c 70000 /dev/zero | tr '\\0' x; printf '\"}'; } > $JOBDIR_RESULT"], outputs: [x], retry: {max_attempts: 5}}
---
group: test
name: asks
steps:
  - {name: handled, handler: fails, retry: {max_attempts: 3}, exit_codes: {retryable: [away]}}
`

var stepHandlers = work.Handlers{
	"count": {Run: func(_ context.Context, op *work.Op) error {
		op.Logf("counting for %s", op.Step())
		return errors.Join(op.Result("parts2", 2), op.Result("note", "not kept"))
	}},
	"fails": {Run: func(_ context.Context, op *work.Op) error {
		if op.RunNumber() == 1 {
			return &work.AttemptError{Err: errors.New("away"), Code: "away"}
		}
		return work.NeedsPerson(errors.New("no key"))
	}},
}

func statuses(rec *statefs.Record) string {
	var out []string
	for _, s := range rec.Steps {
		out = append(out, s.Name+"="+string(s.Status))
	}
	return strings.Join(out, " ")
}

func step(t *testing.T, rec *statefs.Record, name string) *steps.Step {
	t.Helper()
	s := steps.Find(rec.Steps, name)
	if s == nil {
		t.Fatalf("%s has no step %s", rec.ID, name)
	}
	return s
}

// The steps of an operation run in dependency order, each with a run, times and a section of the
// log.
func TestStepsRunInTheirOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, stepJobs, stepHandlers)
	id := b.submit("chain", `{"path":"/b"}`)
	rec := b.awaitEnd(id)
	if rec.Status != statefs.Completed || rec.Result != statefs.Success || rec.Phase != "published" || rec.Error != nil {
		t.Errorf("%s %s, phase %q, %+v", rec.Status, rec.Result, rec.Phase, rec.Error)
	}
	if got, want := statuses(rec),
		"ingest=succeeded shrink=skipped split=succeeded publish=succeeded count=succeeded"; got != want {
		t.Errorf("steps %s, want %s", got, want)
	}
	b.wantLog(id, "== step 1 / 5 ingest", "ingest /b of step ingest",
		"== step 2 / 5 shrink: skipped, its condition does not hold: params.big", "== step 3 / 5 split",
		"[ 1 / 2 ] Processing '1'...", "part 1 of 12", "  OK.", "[ 2 / 2 ] Processing '2'...", "part 2 of 12", "  OK.",
		"== step 4 / 5 publish", "publish", "== step 5 / 5 count", "counting for count")
	log := b.log(id)
	for run, name := range []string{"ingest", "split", "publish", "count"} {
		s := step(t, rec, name)
		if s.Run != run+1 || s.StartedAt == nil || s.EndedAt == nil || s.EndedAt.Before(*s.StartedAt) || s.Retries != 0 {
			t.Errorf("%+v", s)
		}
		if part := log[s.LogFrom:s.LogTo]; !strings.HasPrefix(part, "== step") || !strings.Contains(part, name) ||
			strings.Count(part, "==") > 4 {
			t.Errorf("the part of %s in the log is %q", name, part)
		}
	}
	if got := string(step(t, rec, "count").Outputs["parts2"]); got != "2" || len(step(t, rec, "count").Outputs) != 1 {
		t.Errorf("outputs %v", step(t, rec, "count").Outputs)
	}
	var footer struct {
		Steps map[string]struct {
			Status  string
			Seconds *float64
			Outputs map[string]any
		}
		Total     *int
		Processed int
		Bytes     int
	}
	must(t, json.Unmarshal(rec.Footer, &footer))
	if footer.Total == nil || *footer.Total != 5 || footer.Processed != 2 || footer.Bytes != 12 ||
		len(footer.Steps) != 5 || footer.Steps["shrink"].Status != "skipped" || footer.Steps["split"].Seconds == nil {
		t.Errorf("footer %s", rec.Footer)
	}
	if p := rec.Progress; p == nil || p.Done != 5 || *p.Total != 5 || p.Step != nil {
		t.Errorf("progress %+v", p)
	}
	if rec.Transitions[len(rec.Transitions)-1].Cause != statefs.CauseDone || len(rec.Transitions) != 3 {
		t.Errorf("transitions %v", rec.Transitions)
	}
}

// The exit code, patterns in the output, or the error of the handler classify a failure. A failure
// that needs a person uses up no attempts.
func TestStepsClassifyFailures(t *testing.T) {
	t.Parallel()
	b := setup(t, stepJobs, stepHandlers)
	for _, test := range []struct {
		job, params, code, message string
		runs                       int
	}{
		{"fails", `{"how":"config"}`, "exit_code", "exit code 78", 2},
		{"fails", `{"how":"odd"}`, "exit_code", "exit code 3", 3},
		{"fails", `{"how":"login"}`, "credentials_invalid", "the credential x is wrong", 2},
		{"fails", `{"how":"busy"}`, "provider_busy", "provider busy", 3},
		{"lacks", `{}`, "output_missing", `its result has no "x", which the job names as an output`, 1},
		{
			"large", `{}`, "output_too_large",
			`its output "x" has 70002 bytes; at most 65536 are kept: write it to a file in JOBDIR_ARTIFACTS and give its name`,
			1,
		},
		{"asks", `{}`, "handler_failed", "no key", 2},
	} {
		id := b.submit(test.job, test.params)
		rec := b.record(id, statefs.FailedManual)
		at := rec.CurrentStep()
		if at.Status != steps.FailedManual || at.ErrorCode != test.code || at.ErrorMessage != test.message ||
			rec.Error.Code != test.code || rec.Run != test.runs || at.Run != test.runs {
			t.Errorf("%s %s: %+v, run %d", test.job, test.params, at, rec.Run)
		}
		if test.job == "fails" && (statuses(rec) != "first=succeeded second=failed_manual third=pending" ||
			at.Retries != test.runs-2) {
			t.Errorf("%s %s: %s, %d retries", test.job, test.params, statuses(rec), at.Retries)
		}
		if !strings.Contains(b.log(id), "A person must act") || rec.NeedsPersonSeq == 0 {
			t.Errorf("%s %s: log %s", test.job, test.params, b.log(id))
		}
	}
	id := b.submit("fails", `{"how":"once"}`)
	if rec := b.awaitEnd(id); rec.Result != statefs.Success || step(t, rec, "second").Retries != 1 ||
		step(t, rec, "second").ErrorCode != "" || step(t, rec, "third").Run != 4 {
		t.Errorf("%s: %s", rec.Result, statuses(rec))
	}
}

// A person corrects values, retries, skips and goes back. Finished steps do not run again unless a
// person goes back to them.
func TestPersonsActOnSteps(t *testing.T) {
	t.Parallel()
	b := setup(t, stepJobs, stepHandlers)
	mended, skipped, back := b.submit("fails", `{"how":"config"}`), b.submit("fails", `{"how":"config"}`),
		b.submit("fails", `{"how":"config"}`)
	for _, id := range []statefs.ID{mended, skipped, back} {
		b.record(id, statefs.FailedManual)
	}
	b.request(mended, statefs.Set, `{"values": {"params.how": "ok"}, "by": "anna", "reason": "typo"}`)
	b.await("the value is set", func() bool {
		rec, err := b.tree.ReadRecord(mended)
		return err == nil && string(rec.Corrected["how"]) == `"ok"`
	})
	b.request(mended, statefs.Retry, `{"by": "anna"}`)
	rec := b.awaitEnd(mended)
	if rec.Result != statefs.Success || len(rec.ActionRecords) != 2 || rec.ActionRecords[0].Action != "set" ||
		rec.ActionRecords[0].By != "anna" || rec.ActionRecords[0].Reason != "typo" || rec.ActionRecords[0].At.IsZero() ||
		rec.ActionRecords[1].Step != "second" {
		t.Errorf("%s, %+v", rec.Result, rec.ActionRecords)
	}
	if string(rec.Params) != `{"how":"config"}` || step(t, rec, "first").Run != 1 || step(t, rec, "second").Retries != 1 {
		t.Errorf("params %s, %+v", rec.Params, rec.Steps)
	}

	b.request(skipped, statefs.Skip, `{"reason": "no provider", "by": "bob"}`)
	if rec := b.awaitEnd(skipped); rec.Result != statefs.Success ||
		statuses(rec) != "first=succeeded second=skipped third=succeeded" || step(t, rec, "second").Reason != "no provider" {
		t.Errorf("%s %s: %+v", rec.Result, statuses(rec), rec.Steps)
	}

	last := b.submit("breaks", `{}`)
	b.record(last, statefs.FailedManual)
	b.request(last, statefs.Skip, `{}`)
	if rec := b.awaitEnd(last); rec.Result != statefs.Success || rec.ExitCode != nil || rec.Error != nil ||
		strings.Contains(string(rec.Footer), `"exit_code":`) {
		t.Errorf("%s, exit code %v, %s", rec.Result, rec.ExitCode, rec.Footer)
	}

	b.request(back, statefs.Set, `{"values": {"params.how": "ok"}}`)
	b.await("the value is set", func() bool {
		rec, err := b.tree.ReadRecord(back)
		return err == nil && rec.Corrected != nil
	})
	b.request(back, statefs.Retry, `{"step": "first"}`)
	if rec := b.awaitEnd(back); step(t, rec, "first").Run != 3 || step(t, rec, "second").Run != 4 ||
		rec.Result != statefs.Success {
		t.Errorf("%+v", rec.Steps)
	}
	if names, _ := filepath.Glob(b.tree.ArtifactsPath(back) + "/first.*"); len(names) != 2 {
		t.Errorf("first ran as %v", names)
	}
}

// request puts a request with arguments into jobs/, as a person does.
func (b *bench) request(id statefs.ID, ask statefs.Action, args string) {
	b.t.Helper()
	must(b.t, b.tree.Request(b.t.Context(), id, ask, json.RawMessage(args)))
}

const gateJobs = `
group: test
name: gated
steps:
  - {name: build, run: [sh, -c, "echo build"]}
  - {name: agree, needs: [build], approve: true}
  - {name: ship, needs: [agree], approve: true, run: [echo, ship], milestone: shipped}
---
group: test
name: gate_maybe
params: {n: {type: integer, default: 1}}
steps:
  - {name: agree, approve: true, when: "params.n > 5"}
  - {name: ship, needs: [agree], run: [echo, ship]}
---
group: test
name: gate_first
steps:
  - {name: agree, approve: true}
  - {name: ship, needs: [agree], run: [echo, ship]}
`

// A request with an empty "by", as HTTP requests without a name have, is recorded without a name,
// not as the daemon's user. A request without "by" is recorded as made by the owner of its file.
func TestWhoActed(t *testing.T) {
	t.Parallel()
	b := setup(t, gateJobs, nil)
	me := strconv.Itoa(os.Getuid())
	if known, err := user.LookupId(me); err == nil {
		me = known.Username
	}
	for line, by := range map[string]string{`{"by": ""}`: "", `{}`: me} {
		id := b.submit("gate_first", `{}`)
		b.record(id, statefs.WaitingApproval)
		b.request(id, statefs.Approve, line)
		rec := b.awaitEnd(id)
		if got := step(t, rec, "agree").ApprovedBy; got != by || rec.ActionRecords[0].By != by {
			t.Errorf("%s: approved by %q, %+v, want %q", line, got, rec.ActionRecords, by)
		}
	}
}

// A gate holds until a person approves, whatever else is requested and wherever the marker is
// moved. Each approval is for one gate.
func TestGates(t *testing.T) {
	t.Parallel()
	b := setup(t, gateJobs, nil)
	id := b.submit("gated", `{}`)
	rec := b.record(id, statefs.WaitingApproval)
	if rec.CurrentStep().Name != "agree" || rec.Run != 1 {
		t.Errorf("%s at %+v", rec.Status, rec.CurrentStep())
	}
	b.touch(id, statefs.Resume)
	b.awaitLog(id, "Resume requested while waiting_approval: nothing to do.")
	b.mv(statefs.MarkerName(id, statefs.WaitingApproval), statefs.MarkerName(id, statefs.Queued))
	b.awaitState(id, statefs.WaitingApproval)
	b.request(id, statefs.Approve, `{"step": "ship"}`)
	b.awaitLog(id, "Approve refused")
	b.request(id, statefs.Approve, `{"by": "anna"}`)
	b.await("the next gate", func() bool {
		rec, err := b.tree.ReadRecord(id)
		return err == nil && rec.Status == statefs.WaitingApproval && rec.CurrentStep().Name == "ship"
	})
	b.request(id, statefs.Approve, `{"by": "bob", "reason": "tested"}`)
	rec = b.awaitEnd(id)
	if rec.Result != statefs.Success || rec.Phase != "shipped" || step(t, rec, "agree").ApprovedBy != "anna" ||
		step(t, rec, "agree").Run != 0 ||
		step(t, rec, "ship").ApprovedBy != "bob" || step(t, rec, "ship").ApprovedAt == nil || step(t, rec, "ship").Run != 2 ||
		len(rec.ActionRecords) != 2 {
		t.Errorf("%s %+v %+v", rec.Result, rec.Steps, rec.ActionRecords)
	}

	rejected := b.submit("gate_first", `{}`)
	if rec := b.record(rejected, statefs.WaitingApproval); rec.Starts != 0 || rec.Phase != statefs.FirstPhase {
		t.Errorf("it has begun %d times, phase %q", rec.Starts, rec.Phase)
	}
	b.request(rejected, statefs.Reject, `{"by": "eve", "reason": "too late"}`)
	rec = b.awaitEnd(rejected)
	if rec.Status != statefs.Failed || rec.Error.Code != "rejected" || !strings.Contains(rec.Error.Message,
		"eve: too late") || rec.ActionRecords[0].Action != "reject" {
		t.Errorf("%s %+v %+v", rec.Status, rec.Error, rec.ActionRecords)
	}
	if rec := b.awaitEnd(b.submit("gate_maybe", `{}`)); statuses(rec) != "agree=skipped ship=succeeded" {
		t.Errorf("a gate that is not asked for: %s", statuses(rec))
	}
	asked := b.submit("gate_maybe", `{"n": 9}`)
	b.record(asked, statefs.WaitingApproval)
	b.request(asked, statefs.Approve, `{}`)
	if rec := b.awaitEnd(asked); statuses(rec) != "agree=succeeded ship=succeeded" {
		t.Errorf("a gate that is asked for: %s", statuses(rec))
	}
	skipped := b.submit("gate_first", `{}`)
	b.record(skipped, statefs.WaitingApproval)
	b.request(skipped, statefs.Skip, `{}`)
	if rec := b.awaitEnd(skipped); rec.Result != statefs.Success || statuses(rec) != "agree=skipped ship=succeeded" {
		t.Errorf("%s %s", rec.Result, statuses(rec))
	}
}

// An approval that is carried out again after a crash does not open the next gate.
func TestAnApprovalIsForOneGate(t *testing.T) {
	t.Parallel()
	b := setup(t, gateJobs, nil)
	id := b.submit("gated", `{}`)
	b.record(id, statefs.WaitingApproval)
	b.request(id, statefs.Approve, `{}`)
	b.await("the next gate", func() bool {
		rec, err := b.tree.ReadRecord(id)
		return err == nil && rec.Status == statefs.WaitingApproval && rec.CurrentStep().Name == "ship"
	})
	rec, err := b.tree.ReadRecord(id)
	must(t, err)
	must(t, b.stop())
	old := rec.ActionRecords[0].RequestedAt
	file := filepath.Join(b.dir, "taken", statefs.RequestName(id, statefs.Approve))
	must(t, os.WriteFile(file, fmt.Appendf(nil, "%s\n{}\n", old.Format(statefs.StampFormat)), 0o600))
	must(t, os.Chtimes(file, old, old))
	b.start()
	b.awaitLog(id, "Approve requested while waiting_approval: nothing to do.")
	if rec := b.record(id, statefs.WaitingApproval); rec.CurrentStep().Name != "ship" ||
		rec.CurrentStep().ApprovedAt != nil {
		t.Errorf("%+v", rec.CurrentStep())
	}
}

// The progress of a step counts only its own output, not lines of the step before.
func TestProgressIsOfTheStepAtWork(t *testing.T) {
	t.Parallel()
	b := setup(t, `
group: test
name: counted
steps:
  - {name: one, run: [echo, "[ 3 / 3 ] the last one"]}
  - {name: two, needs: [one], run: [sh, -c, "echo words; until test -e $JOBDIR_ARTIFACTS/go; do sleep 0.02; done; echo '[ 1 / 4 ] the first'; until test -e $JOBDIR_ARTIFACTS/end; do sleep 0.02; done"]}
`, nil)
	id := b.submit("counted", `{}`)
	b.awaitLog(id, "words")
	progress := func(done int64) func() bool {
		return func() bool {
			p, err := b.tree.ReadProgress(id)
			return err == nil && p.Step != nil && p.Step.Name == "two" && p.Step.Done == done
		}
	}
	b.poll("the second step shows a sign of life", progress(0))
	b.artifact(id, "go")
	b.poll("the second step has one of four", progress(1))
	p, err := b.tree.ReadProgress(id)
	must(t, err)
	if fraction, known := p.Fraction(); p.Done != 1 || *p.Total != 2 || *p.Step.Total != 4 || !known || fraction != 0.625 {
		t.Errorf("%+v, fraction %v", p, fraction)
	}
	b.artifact(id, "end")
	b.awaitEnd(id)
}
