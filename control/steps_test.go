package control

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/steps"
)

func TestAnOperationShowsItsSteps(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var submitted struct{ Steps []steps.View }
	a := r.do("POST", "/film/make", `{"path":"/a"}`)
	must(t, json.Unmarshal([]byte(a.body), &submitted))
	if len(submitted.Steps) != 4 || submitted.Steps[3].Name != "extra" || !submitted.Steps[3].Optional ||
		submitted.Steps[2].Needs[0] != "split" || !submitted.Steps[2].Approve {
		t.Errorf("the submit answers %+v", submitted.Steps)
	}
	w := r.film(statefs.FailedManual, atSplit)
	got := r.get(w.path("")).json(t)
	list := items(got["steps"])
	if len(list) != 4 || list[0]["duration_seconds"] != 1.5 || list[0]["number"] != 1.0 ||
		list[1]["error_code"] != "no_tracks" || list[1]["duration_seconds"] != nil {
		t.Errorf("the steps are %v", got["steps"])
	}
	attention, _ := got["attention"].(map[string]any)
	if attention["step"] != "split" || attention["message"] != "it has no tracks" || attention["number"] != 2.0 ||
		got["all_done"] != nil {
		t.Errorf("attention %v, all_done %v", attention, got["all_done"])
	}
	// The definition at submit applies, also if the job has a newer one, or none.
	w.change(func(rec *statefs.Record) { rec.Job = "gone" })
	if list := items(r.get(w.path("")).json(t)["steps"]); fmt.Sprint(list[2]["needs"]) != "[split]" {
		t.Errorf("of a job that is gone: %v", list)
	}
	w.change(func(rec *statefs.Record) { rec.Definition = strings.Repeat("0", 64) })
	if list := items(r.get(w.path("")).json(t)["steps"]); len(list) != 4 || list[2]["needs"] != nil {
		t.Errorf("without a definition: %v", list)
	}
	if got := r.get(w.path("/stream?format=json")); got.status != http.StatusAccepted ||
		!strings.Contains(got.body,
			"waits for a person at step 2 / 4 split: it has no tracks; when that is mended, 'jobdir retry ") {
		t.Errorf("the footer: %d %s", got.status, got.body)
	}
}

func TestListsShowWhatNeedsAttention(t *testing.T) {
	t.Parallel()
	r := setup(t)
	failed, gate := r.film(statefs.FailedManual, atSplit), r.film(statefs.WaitingApproval, atPublish)
	r.submit().start()
	list := items(r.get("/api/v1/operations?needs_attention=true&sort=created").json(t)["operations"])
	if len(list) != 2 || list[0]["id"] != gate.id.String() || list[1]["id"] != failed.id.String() {
		t.Fatalf("%v", list)
	}
	for i, want := range []string{
		"an approval is needed publish [jobdir approve " + gate.id.String() + " ",
		"it has no tracks split [jobdir retry " + failed.id.String() + " ",
	} {
		a, _ := list[i]["attention"].(map[string]any)
		if got := fmt.Sprint(a["message"], " ", a["step"], " ", a["commands"]); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if list := items(r.get("/api/v1/operations?needs_attention=true&status=failed_manual").json(t)["operations"]); len(list) != 1 {
		t.Errorf("with a status: %v", list)
	}
	if list := items(r.get("/api/v1/operations?needs_attention=false").json(t)["operations"]); len(list) != 3 {
		t.Errorf("without: %v", list)
	}
	r.problem(r.get("/api/v1/operations?needs_attention=true&status=failed"), 400,
		"no operation with one of the given statuses [failed] waits for a person")
	r.problem(r.get("/api/v1/operations?needs_attention=perhaps"), 400, "must be true or false")
	if got := r.do("POST", "/api/v1/bulk",
		`{"action":"retry","filter":{"needs_attention":"true"}}`).json(t); got["done"] != 1.0 ||
		failed.request(statefs.Retry) != `{"step":"split","run":2,"by":""}` {
		t.Errorf("bulk: %v, %s", got, failed.request(statefs.Retry))
	}
}

// A trailing operation has its result: its stream has ended, and its status is completed.
func TestATrailingOperationIsCompleted(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.film(statefs.Trailing, func(rec *statefs.Record) {
		atPublish(rec)
		rec.Steps[2].Status, rec.Steps[3].Status = steps.Succeeded, steps.Running
		size := int64(4)
		rec.LogBytes, rec.Footer, rec.Result = &size, json.RawMessage(resultJSON), statefs.Success
		must(t, rec.Apply(statefs.Running, statefs.CauseDone, time.Now()))
		rec.Trailing = true
	})
	log, err := r.owner.Output.AppendLog(w.id, "")
	must(t, err)
	defer log.Close()
	w.log = log
	w.write("one\nlate\n")
	got := r.get(w.path("?wait=30s")).json(t)
	if got["state"] != "trailing" || got["status"] != "completed" || got["all_done"] != false {
		t.Errorf("state %v, status %v, all_done %v", got["state"], got["status"], got["all_done"])
	}
	if text := r.get(w.path("/stream")).body; !strings.Contains(text, "<log>\none\n</log>\n<end_json>") {
		t.Errorf("the stream is %s", text)
	}
	if text := r.get(w.path("/stream?format=json")).body; !strings.Contains(text, `"result": "success"`) {
		t.Errorf("the footer is %s", text)
	}
	answers := make(chan reply, 1)
	go func() { answers <- r.do("POST", w.path("/cancel?wait=30s"), "") }()
	r.until("the request is there", func() bool {
		s, err := r.tree.ObserveAll(w.id)
		return err == nil &&
			len(s.Requests) == 1
	})
	taken, _, err := r.owner.Requests.Take(w.id, statefs.Cancel)
	must(t, err)
	rec, err := r.tree.ReadRecord(w.id)
	must(t, err)
	must(t, rec.Apply(statefs.Trailing, statefs.CauseCancel, time.Now()))
	rec.Trailing = false
	must(t, r.owner.WriteEnd(rec))
	must(t, r.owner.RemoveMarker(rec.ID, statefs.Trailing))
	must(t, r.owner.Requests.Drop(taken))
	w.settle(statefs.Completed, true)
	if a := <-answers; a.status != 200 || a.json(t)["took_effect"] != true || a.json(t)["state"] != "completed" {
		t.Errorf("cancel: %d %s", a.status, a.body)
	}
	if got := r.get(w.path("")).json(t); got["state"] != "completed" || got["all_done"] != true {
		t.Errorf("at the end: %v %v", got["state"], got["all_done"])
	}
}

func TestTheLogOfAStep(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.film(statefs.Running, func(rec *statefs.Record) {
		at := rec.CreatedAt
		rec.Steps[0] = steps.Step{Name: "ingest", Status: steps.Succeeded, StartedAt: &at, EndedAt: &at, LogFrom: 2, LogTo: 6}
		rec.Steps[1] = steps.Step{Name: "split", Status: steps.Running, StartedAt: &at, LogFrom: 6}
		rec.Steps[3] = steps.Step{Name: "extra", Status: steps.Running, StartedAt: &at, Log: "extra.log"}
	})
	log, err := r.owner.Output.AppendLog(w.id, "")
	must(t, err)
	defer log.Close()
	w.log = log
	w.write("==one\nsplit\n")
	must(t, r.owner.MakeStepFolder(w.id))
	must(t, os.WriteFile(r.tree.StepLogPath(w.id, "extra"), []byte("aside\n"), 0o640))
	for step, want := range map[string]string{"ingest": "one\n", "split": "split\n", "publish": "", "extra": "aside\n"} {
		if a := r.get(w.path("/log?step=" + step)); a.status != 200 || a.body != want {
			t.Errorf("%s: %d %q, want %q", step, a.status, a.body, want)
		}
	}
	w.change(func(rec *statefs.Record) {
		rec.Steps[1].Run, rec.Steps[1].Earlier = 9, []steps.EarlierRun{
			{Run: 2, LogFrom: 0, LogTo: 3},
			{Run: 4, LogFrom: 3, LogTo: 6},
		}
	})
	for run, want := range map[string]string{"2": "==o", "4": "ne\n", "9": "split\n", "": "split\n"} {
		a := r.get(w.path("/log?step=split&run=" + run))
		if got := a.header.Get("X-Jobdir-Run"); a.status != 200 || a.body != want || got != cmp.Or(run, "9") ||
			a.header.Get("X-Jobdir-Runs") != "2, 4, 9" {
			t.Errorf("run %s: %d %q, of %s, want %q", run, a.status, a.body, got, want)
		}
	}
	r.problem(r.get(w.path("/log?step=split&run=3")), 404, "has no run 3: its runs are 2, 4 and 9")
	r.problem(r.get(w.path("/log?step=publish&run=1")), 404, "has no run 1: it has not begun")
	r.problem(r.get(w.path("/log?step=split&run=last")), 400, "'run'")
	r.problem(r.get(w.path("/log?run=2")), 400, "'run'")
	if a := r.get(w.path("/log?step=publish")); a.header.Get("X-Jobdir-Run") != "" {
		t.Errorf("a step that has not begun has run %q", a.header.Get("X-Jobdir-Run"))
	}
	if a := r.get(w.path("/log?step=split"), "Range: bytes=-3"); a.status != 206 || a.body != "it\n" {
		t.Errorf("the end of split: %d %q", a.status, a.body)
	}
	r.problem(r.get(w.path("/log?step=none")), 404, "has no step 'none'")
	w.change(func(rec *statefs.Record) { rec.Steps[3].Log = "../../jobdir.lock" })
	if a := r.get(w.path("/log?step=extra")); a.status != 500 {
		t.Errorf("a file of somebody else: %d %q", a.status, a.body)
	}
}

// A stream has one event per step at the beginning, and then one per change, although nothing changes in jobs/.
func TestStepsAreFollowed(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.film(statefs.Running, atSplit)
	resp := r.open("GET", w.path("/stream?format=sse"), "")
	defer resp.Body.Close()
	next := lineReader(resp.Body)
	step := func() string {
		t.Helper()
		for {
			line := next()
			if strings.Contains(line, "EOF") || strings.HasPrefix(line, "event: end") {
				t.Fatalf("the stream ended: %s", line)
			}
			if line != "event: step" {
				continue
			}
			var data api.Step
			must(t, json.Unmarshal([]byte(strings.TrimPrefix(next(), "data: ")), &data))
			if data.ID != w.id || data.Total != 4 {
				t.Errorf("%+v", data)
			}
			return fmt.Sprintf("%d %s %s %d %s", data.Number, data.Step, data.Status, data.Run, data.ErrorCode)
		}
	}
	for _, want := range []string{
		"1 ingest succeeded 1 ", "2 split failed_manual 2 no_tracks", "3 publish pending 0 ",
		"4 extra pending 0 ",
	} {
		if got := step(); got != want {
			t.Errorf("at first %s, want %s", got, want)
		}
	}
	for i, status := range []steps.Status{steps.Pending, steps.Running, steps.Succeeded} {
		w.change(func(rec *statefs.Record) {
			rec.Steps[1] = steps.Step{Name: "split", Status: status, Run: 3 + i}
		})
		if got, want := step(), fmt.Sprintf("2 split %s %d ", status, 3+i); got != want {
			t.Errorf("then %s, want %s", got, want)
		}
	}
}
