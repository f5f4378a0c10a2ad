package control

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/control/front"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

const filmDefinition = `---
group: film
name: make
params:
  path: {type: string, required: true}
  tries: {type: integer, default: 3, maximum: 9}
unique: {on_hit: off}
steps:
  - {name: ingest, handler: simulation, outputs: [count]}
  - {name: split, needs: [ingest], handler: simulation}
  - {name: publish, needs: [split], approve: true}
  - {name: extra, needs: [ingest], optional: true, handler: simulation}
`

// film submits film/make and moves it into a state, as the daemon does.
func (r *rig) film(state statefs.State, change func(*statefs.Record)) *work {
	r.t.Helper()
	a := r.do("POST", "/film/make", `{"path":"/a"}`)
	if a.status != http.StatusCreated {
		r.t.Fatalf("submit: %d %s", a.status, a.body)
	}
	w := r.take(a.header.Get(operationHeader))
	w.change(change)
	must(r.t, r.owner.Move(w.id, statefs.Queued, state))
	return w
}

// change writes a changed record.
func (w *work) change(how func(*statefs.Record)) {
	w.rig.t.Helper()
	rec, err := w.rig.tree.ReadRecord(w.id)
	must(w.rig.t, err)
	how(rec)
	must(w.rig.t, w.rig.owner.WriteRecord(rec))
}

func atSplit(rec *statefs.Record) {
	began := rec.CreatedAt
	ended := began.Add(1500 * time.Millisecond)
	rec.Run, rec.Starts = 2, 2
	rec.Steps[0].Status, rec.Steps[0].Run, rec.Steps[0].StartedAt,
		rec.Steps[0].EndedAt = steps.Succeeded, 1, &began, &ended
	rec.Steps[0].Outputs = map[string]json.RawMessage{"count": []byte("3")}
	rec.Steps[1].Status, rec.Steps[1].Run, rec.Steps[1].ErrorCode, rec.Steps[1].ErrorMessage = steps.FailedManual, 2,
		"no_tracks", "it has no tracks"
}

func atPublish(rec *statefs.Record) {
	atSplit(rec)
	rec.Steps[1] = steps.Step{Name: "split", Status: steps.Succeeded, Run: 2}
}

// request returns the second line of a request file.
func (w *work) request(ask statefs.Action) string {
	w.rig.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.rig.tree.JobsDir(), statefs.RequestName(w.id, ask)))
	must(w.rig.t, err)
	_, line, _ := strings.Cut(strings.TrimSuffix(string(data), "\n"), "\n")
	return line
}

// A request about a step names the step and the run that the requester has seen.
func TestStepActionsAreWritten(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.film(statefs.FailedManual, atSplit)
	for _, test := range []struct{ path, body, want string }{
		{"/retry", "", `{"step":"split","run":2,"by":""}`},
		{"/retry?step=ingest", "", `{"step":"ingest","run":2,"by":""}`},
		{
			"/retry", `{"step":"ingest","by":"anna","reason":"new source"}`,
			`{"step":"ingest","run":2,"by":"anna","reason":"new source"}`,
		},
		{"/skip", `{"reason":"no tracks","by":"anna"}`, `{"step":"split","run":2,"by":"anna","reason":"no tracks"}`},
		{"/skip?step=publish", `{"run":2}`, `{"step":"publish","run":2,"by":""}`},
		{
			"/set", `{"values":{"params.path":"/b","steps.ingest.outputs.count":4}}`,
			`{"run":2,"by":"","values":{"params.path":"/b","steps.ingest.outputs.count":4}}`,
		},
	} {
		a := r.do("POST", w.path(test.path), test.body)
		ask := statefs.Action(strings.TrimPrefix(strings.Split(test.path, "?")[0], "/"))
		if got := w.request(ask); a.status != http.StatusAccepted || got != test.want {
			t.Errorf("%s %s: %d %s, request %s, want %s", test.path, test.body, a.status, a.body, got, test.want)
		}
	}
	if a := r.do("POST", w.path("/skip"), `{"by":"anna"}`, "X-Created-By: bert"); a.status != 202 ||
		!strings.Contains(w.request(statefs.Skip), `"by":"bert"`) {
		t.Errorf("by the header: %s, %s", a.body, w.request(statefs.Skip))
	}
	gate := r.film(statefs.WaitingApproval, atPublish)
	r.do("POST", gate.path("/approve"), `{"by":"anna"}`)
	if got := gate.request(statefs.Approve); got != `{"step":"publish","run":2,"by":"anna"}` {
		t.Errorf("approve: %s", got)
	}
	r.do("POST", gate.path("/reject"), `{"reason":"too long"}`) // replaces the earlier request
	if got := gate.request(statefs.Reject); got != `{"step":"publish","run":2,"by":"","reason":"too long"}` {
		t.Errorf("reject: %s", got)
	}
	if _, err := os.Stat(filepath.Join(r.tree.JobsDir(), statefs.RequestName(gate.id, statefs.Approve))); err == nil {
		t.Error("both are asked for")
	}
}

func TestStepActionsAreRefused(t *testing.T) {
	t.Parallel()
	r := setup(t)
	failed, gate, done := r.film(statefs.FailedManual, atSplit),
		r.film(statefs.WaitingApproval, atPublish), r.submit().start()
	running := r.film(statefs.Running, func(*statefs.Record) {})
	done.finish()
	for _, test := range []struct {
		path, body string
		status     int
		member     string
		text       string
	}{
		{
			failed.path("/skip?step=slpit"), "", 400, "step",
			"there is no step 'slpit'; its steps are ingest, split, publish, extra",
		},
		{failed.path("/skip?step=ingest"), "", 400, "step", "step ingest is succeeded: there is nothing to skip"},
		{failed.path("/skip?step=split"), `{"step":"ingest"}`, 400, "step", "the same as in the body"},
		{failed.path("/skip?step="), "", 400, "step", "must be the name of a step"},
		{failed.path("/skip?why=x"), "", 400, "why", "Unknown parameter 'why'; known here: wait, step"},
		{
			failed.path("/skip"), `{"setp":"x"}`, 400, "setp",
			"there is no such member; known are step, run, by, reason, values",
		},
		{failed.path("/skip"), `{"step":"x","step":"split"}`, 400, "", "it is given twice"},
		{failed.path("/skip"), `[1]`, 400, "", "The body must be a JSON object"},
		{failed.path("/skip"), `{"reason":"a\nb"}`, 400, "reason", "it has a control character"},
		{failed.path("/skip"), `{"run":1}`, 409, "", "run 1 was meant, and it is at run 2 now"},
		{failed.path("/retry?step=publish"), "", 400, "step", "has not begun"},
		{failed.path("/set"), `{"values":{}}`, 400, "values", "it is missing"},
		{failed.path("/set"), `{"values":{"params.pat":1}}`, 400, "values.params.pat", "unknown parameter 'pat'"},
		{failed.path("/set"), `{"values":{"params.tries":10}}`, 400, "values.params.tries", "tries"},
		{
			failed.path("/set"), `{"values":{"steps.split.outputs.count":1}}`, 400, "values.steps.split.outputs.count",
			"step split has no output 'count'; it has none",
		},
		{
			failed.path("/approve"), "", 409, "",
			"is failed_manual at step split and has no use for approve: no step of it waits for an approval; 'jobdir retry ",
		},
		{gate.path("/retry"), "", 409, "", "'jobdir approve "},
		{running.path("/skip"), "", 409, "", "is running at step ingest and has no use for skip"},
		{running.path("/retry"), "", 409, "", "has no use for retry"},
		{done.path("/skip"), "", 409, "", "is completed and has no use for skip"},
		{"/api/v1/operations/film-make_2025-11-26_13-07-00_p5_r999999/skip", "", 404, "", "not found"},
		{"/api/v1/operations/film/skip", "", 400, "", "Invalid operation ID"},
	} {
		p := r.problem(r.do("POST", test.path, test.body), test.status, test.text)
		if member, _ := p["parameter"].(string); member != test.member {
			t.Errorf("%s %s: the parameter is %q, want %q", test.path, test.body, member, test.member)
		}
		if test.status == 409 && p["state"] == nil {
			t.Errorf("%s %s: the answer has no state: %v", test.path, test.body, p)
		}
	}
	listing, err := r.tree.List()
	must(t, err)
	if len(listing.Requests) > 0 {
		t.Errorf("requests were written: %v", listing.Requests)
	}
}

// The requester is the owner of the token, whatever else the request says.
func TestTokenNamesTheRequester(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) { c.Tokens = []front.Token{{Name: "alice", Secret: "alices-secret-123"}} })
	const token = "Authorization: Bearer alices-secret-123"
	a := r.do("POST", "/film/make", `{"path":"/a"}`, token)
	w := r.take(a.header.Get(operationHeader))
	w.change(atPublish)
	must(t, r.owner.Move(w.id, statefs.Queued, statefs.WaitingApproval))
	r.do("POST", w.path("/approve"), `{"by":"bob"}`, token, "X-Created-By: carl")
	if got := w.request(statefs.Approve); !strings.Contains(got, `"by":"alice"`) {
		t.Errorf("approved: %s", got)
	}
	r.get("/film/control?action=approve&by=bob&id="+w.id.String(), token)
	if got := w.request(statefs.Approve); !strings.Contains(got, `"by":"alice"`) {
		t.Errorf("approved by the group's control: %s", got)
	}
}

func TestStepActionsByGroupPath(t *testing.T) {
	t.Parallel()
	r := setup(t)
	failed, gate := r.film(statefs.FailedManual, atSplit), r.film(statefs.WaitingApproval, atPublish)
	url := func(action string, w *work, more string) string {
		return "/film/control?action=" + action + "&id=" + w.id.String() + more
	}
	if a := r.get(url("skip", failed, "&reason=no+tracks&by=anna")); a.status != 200 ||
		failed.request(statefs.Skip) != `{"step":"split","run":2,"by":"anna","reason":"no tracks"}` {
		t.Errorf("skip: %d %s, %s", a.status, a.body, failed.request(statefs.Skip))
	}
	if a := r.get(url("retry", failed, "&step=ingest")); a.status != 200 ||
		failed.request(statefs.Retry) != `{"step":"ingest","run":2,"by":""}` {
		t.Errorf("retry: %d %s", a.status, a.body)
	}
	if a := r.do("POST", "/film/control",
		`{"id":"`+gate.id.String()+`","action":"approve","by":"anna"}`); a.status != 200 ||
		gate.request(statefs.Approve) != `{"step":"publish","run":2,"by":"anna"}` {
		t.Errorf("approve: %d %s", a.status, a.body)
	}
	r.problem(r.get(url("approve", failed, "")), 409, "has no use for approve")
	r.problem(r.get(url("skip", failed, "&step=none")), 400, "there is no step 'none'")
	r.problem(r.get(url("set", failed, "")), 400, "Invalid action 'set'")
	r.problem(r.get(url("pause", failed, "&step=split")), 400, "Unknown parameter 'step'")
	r.problem(r.get("/media/control?action=skip&id="+failed.id.String()), 404,
		"is not of group 'media': control it by /film/control")
}

// A wait ends when the record shows that the request was carried out, whether or not the state has changed.
func TestStepActionWaitsForEffect(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.film(statefs.FailedManual, atSplit)
	carryOut := func(ask statefs.Action, to statefs.State) reply {
		t.Helper()
		answers := make(chan reply, 1)
		body := `{}`
		if ask == statefs.Set {
			body = `{"values":{"params.tries":4}}`
		}
		go func() { answers <- r.do("POST", w.path("/"+string(ask)+"?wait=30s"), body) }()
		file := filepath.Join(r.tree.JobsDir(), statefs.RequestName(w.id, ask))
		r.until("the request is there", func() bool { _, err := os.Stat(file); return err == nil })
		taken, ok, err := r.owner.Requests.Take(w.id, ask)
		must(t, err)
		if !ok {
			t.Fatal("the request is gone")
		}
		w.change(func(rec *statefs.Record) {
			rec.ActionRecords = append(rec.ActionRecords, steps.ActionRecord{Action: string(ask), At: time.Now()})
			if to != statefs.FailedManual {
				rec.Next = to
			}
		})
		if to != statefs.FailedManual {
			must(t, r.owner.Move(w.id, statefs.FailedManual, to))
		}
		must(t, r.owner.Requests.Drop(taken))
		w.settle(to, true)
		return <-answers
	}
	for _, ask := range []statefs.Action{statefs.Set, statefs.Set, statefs.Skip} {
		to := statefs.FailedManual
		if ask == statefs.Skip {
			to = statefs.Queued
		}
		a := carryOut(ask, to)
		if got := a.json(t); a.status != 200 || got["took_effect"] != true || got["state"] != string(to) {
			t.Errorf("%s: %d %s", ask, a.status, a.body)
		}
	}
	must(t, r.owner.Move(w.id, statefs.Queued, statefs.FailedManual))
	if a := r.do("POST", w.path("/set?wait=50ms"), `{"values":{"params.tries":4}}`); a.status != 202 ||
		a.json(t)["pending"] != true {
		t.Errorf("nobody carries it out: %d %s", a.status, a.body)
	}
}

// After a person has acted on an operation, a waiting client is not told that it waits for a person, unless the request
// is refused.
func TestWaitContinuesAfterApproval(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.film(statefs.WaitingApproval, atPublish)
	if got := r.get(w.path("?wait=30s")).json(t); got["state"] != "waiting_approval" {
		t.Errorf("nobody has acted: %v", got["state"])
	}
	answers := make(chan reply, 1)
	wait := func() statefs.TakenRequest {
		r.do("POST", w.path("/approve"), `{}`)
		taken, _, err := r.owner.Requests.Take(w.id, statefs.Approve)
		must(t, err)
		go func() { answers <- r.get(w.path("?wait=10m&for=running")) }()
		return taken
	}
	must(t, r.owner.Requests.Drop(wait()))
	r.played.changed(w.id)
	if a := <-answers; a.json(t)["state"] != "waiting_approval" {
		t.Errorf("after the refusal: %s", a.body)
	}
	taken := wait()
	must(t, r.owner.Move(w.id, statefs.WaitingApproval, statefs.Running))
	must(t, r.owner.Requests.Drop(taken))
	if a := <-answers; a.json(t)["state"] != "running" {
		t.Errorf("after the approval: %s", a.body)
	}
}
