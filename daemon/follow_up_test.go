package daemon

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

const thenJobs = `
group: test
name: decode
params: {title: {type: string, required: true}, part: {type: integer}}
run: [sh, -c, 'echo "{\"frames\": 25, \"names\": [\"a\"]}" >$JOBDIR_RESULT']
then:
  job: test/publish
  params: {title: "${params.title}", frames: "${result.frames}", note: "from ${id}, ${result.names}", part: "${params.part}"}
---
group: test
name: publish
params:
  title: {type: string, required: true}
  frames: {type: integer, required: true}
  note: {type: string}
  part: {type: integer, default: 7}
handler: count
---
group: test
name: unfit
handler: count
then: {job: test/publish, params: {title: x, frames: "${result.none}"}}
---
group: test
name: sad
run: ["false"]
then: {job: test/publish, params: {title: x, frames: 1}}
---
group: test
name: exact
handler: count
then: {job: test/measure, params: {ratio: 0.5, share: -1.25e-1}}
---
group: test
name: measure
params: {ratio: {type: number}, share: {type: number}}
handler: count
`

// leftJobs are the jobs of an earlier catalog; the daemon's catalog lacks test/missing.
const leftJobs = thenJobs + `
---
group: test
name: missing
handler: count
---
group: test
name: nowhere
handler: count
then: {job: test/missing}
`

func thenBench(t *testing.T) *bench {
	t.Helper()
	b := prepare(t, thenJobs, testHandlers)
	b.config.Intake = submit.NewIntake(submit.Config{Tree: b.tree, Admit: func([]*statefs.Record) error {
		return &submit.BusyError{Text: "it is closed"} // must not drop a follow-up of accepted work
	}})
	return b
}

func TestThen(t *testing.T) {
	t.Parallel()
	b := thenBench(t)
	b.start()
	id := b.submit("decode", `{"title": "Seven \"Samurai\""}`)
	rec := b.awaitEnd(id)
	if rec.Then == nil || rec.Then.Error != "" || rec.Status != statefs.Completed {
		t.Fatalf("it is %s, then %+v, log %s", rec.Status, rec.Then, b.log(id))
	}
	b.wantLog(id, "  Then test/publish: "+rec.Then.ID.String()+".")
	next := b.awaitEnd(rec.Then.ID)
	var params map[string]any
	must(t, json.Unmarshal(next.Params, &params))
	want := map[string]any{"title": `Seven "Samurai"`, "frames": 25.0, "note": `from ` + id.String() +
		`, ["a"]`, "part": 7.0}
	for name, value := range want {
		if params[name] != value {
			t.Errorf("parameter %s is %v, want %v", name, params[name], value)
		}
	}
	if next.CreatedBy != "then "+id.String() {
		t.Errorf("it was created by %q", next.CreatedBy)
	}
}

// A number in the parameters of the next job is passed as a number.
func TestThenTakesNumbers(t *testing.T) {
	t.Parallel()
	b := thenBench(t)
	b.start()
	rec := b.awaitEnd(b.submit("exact", `{}`))
	if rec.Then == nil || rec.Then.Error != "" {
		t.Fatalf("then %+v", rec.Then)
	}
	if got := string(b.awaitEnd(rec.Then.ID).Params); got != `{"ratio":0.5,"share":-0.125}` {
		t.Errorf("its parameters are %s", got)
	}
}

// A refused follow-up is reported in the log and the record, and the end stays valid.
func TestThenThatCannotBeSubmitted(t *testing.T) {
	t.Parallel()
	b := thenBench(t)
	b.start()
	b.catalog = catalogOf(t, leftJobs, testHandlers)
	for job, want := range map[string]string{
		"nowhere": "there is no job test/missing",
		"unfit":   `the result has no member "none"`,
	} {
		id := b.submit(job, `{}`)
		rec := b.awaitEnd(id)
		if rec.Status != statefs.Completed || rec.Then == nil || !strings.Contains(rec.Then.Error, want) ||
			!strings.Contains(b.log(id), want) {
			t.Errorf("%s is %s, then %+v", job, rec.Status, rec.Then)
		}
	}
	if rec := b.awaitEnd(b.submit("sad", `{}`)); rec.Then != nil {
		t.Errorf("what fails has a follower: %+v", rec.Then)
	}
}

// An end that is carried out twice, because the daemon died in between, has one follower.
func TestThenHappensOnce(t *testing.T) {
	t.Parallel()
	b := thenBench(t)
	b.start()
	id := b.submit("decode", `{"title": "once"}`)
	rec := b.awaitEnd(id)
	first := rec.Then.ID
	b.awaitEnd(first)
	op, again := newOperation(rec), *rec
	again.Then = nil
	rep := new(work.Report)
	rep.AddOutputs([]steps.Step{{Outputs: map[string]json.RawMessage{
		"frames": json.RawMessage("25"), "names": json.RawMessage(`["a"]`),
	}}})
	must(t, b.daemon.recordFollowUp(op, &again, rep))
	if again.Then == nil || again.Then.ID != first {
		t.Errorf("the second time it is followed by %+v, want %s", again.Then, first)
	}
	b.daemon.closeLog(op)
}
