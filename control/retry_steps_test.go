package control

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// endedFilm is an ended operation of film/make.
func (r *rig) endedFilm(cause statefs.Cause, result statefs.Result, change func(*statefs.Record)) *work {
	r.t.Helper()
	w := r.film(statefs.Running, change)
	rec, err := r.tree.ReadRecord(w.id)
	must(r.t, err)
	must(r.t, rec.Apply(statefs.Running, cause, time.Now()))
	rec.Result, rec.Footer = result, json.RawMessage(resultJSON)
	must(r.t, r.owner.WriteEnd(rec))
	must(r.t, r.owner.RemoveMarker(rec.ID, statefs.Running))
	return w
}

// problemText returns NAME=STATUS for each step; optional steps are marked with a question mark.
func problemText(t *testing.T, a reply) string {
	t.Helper()
	var op struct{ Steps []steps.View }
	must(t, json.Unmarshal([]byte(a.body), &op))
	var out []string
	for _, s := range op.Steps {
		text := s.Name + "=" + string(s.Status)
		if s.Optional {
			text += "?"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestARetryInheritsSteps(t *testing.T) {
	t.Parallel()
	r := setup(t)
	atEnd := func(extra steps.Status) func(*statefs.Record) {
		return func(rec *statefs.Record) {
			atPublish(rec)
			rec.Steps[2].Status, rec.Steps[2].ApprovedBy = steps.Succeeded, "anna"
			rec.Steps[3].Status = extra
		}
	}
	for _, test := range []struct {
		name   string
		old    *work
		query  string
		want   string
		status int
	}{
		{
			"cancelled", r.endedFilm(statefs.CauseCancel, statefs.CancelledResult, atSplit), "",
			"ingest=succeeded split=pending publish=pending extra=pending?", 201,
		},
		{
			"from an earlier step", r.endedFilm(statefs.CauseCancel, statefs.CancelledResult, atPublish), "?step=ingest",
			"ingest=pending split=pending publish=pending extra=pending?", 201,
		},
		{
			"without the optional step", r.endedFilm(statefs.CauseDone, statefs.Success, atEnd(steps.FailedManual)), "",
			"ingest=succeeded split=succeeded publish=succeeded extra=pending", 201,
		},
		{"all is done", r.endedFilm(statefs.CauseDone, statefs.Success, atEnd(steps.Succeeded)), "", "", 409},
		{
			"all is done, and back", r.endedFilm(statefs.CauseDone, statefs.Success, atEnd(steps.Skipped)), "?step=publish",
			"ingest=succeeded split=succeeded publish=pending extra=skipped?", 201,
		},
		{"no such step", r.endedFilm(statefs.CauseCancel, statefs.CancelledResult, atSplit), "?step=none", "", 400},
		{"an output is missing", r.endedFilm(statefs.CauseCancel, statefs.CancelledResult, func(rec *statefs.Record) {
			atPublish(rec)
			rec.Steps[0].Outputs = nil
		}), "", "ingest=pending split=pending publish=pending extra=pending?", 201},
	} {
		a := r.do("POST", test.old.path("/retry"+test.query), "")
		if a.status != test.status {
			t.Errorf("%s: %d %s", test.name, a.status, a.body)
			continue
		}
		if test.status == http.StatusCreated && problemText(t, a) != test.want {
			t.Errorf("%s: %s, want %s", test.name, problemText(t, a), test.want)
		}
	}
}

// The new operation begins with the values that persons corrected, and keeps the outputs of done steps.
func TestARetryInheritsCorrections(t *testing.T) {
	t.Parallel()
	r := setup(t)
	old := r.endedFilm(statefs.CauseCancel, statefs.CancelledResult, func(rec *statefs.Record) {
		atSplit(rec)
		rec.Corrected = map[string]json.RawMessage{"path": json.RawMessage(`"/b"`), "tries": json.RawMessage("5")}
	})
	got := r.do("POST", old.path("/retry"), `{"reason":"again"}`).json(t)
	if fmt.Sprint(got["params"]) != "map[path:/b tries:5]" || got["retry_of"] != old.id.String() ||
		got["corrected"] != nil {
		t.Errorf("params %v, retry of %v, corrected %v", got["params"], got["retry_of"], got["corrected"])
	}
	first := items(got["steps"])[0]
	if fmt.Sprint(first["outputs"]) != "map[count:3]" || first["duration_seconds"] != 1.5 || first["run"] != nil {
		t.Errorf("the first step is %v", first)
	}
	r.problem(r.do("POST", old.path("/retry"), `{"setp":"x"}`), 400, "there is no such member")
	plain := r.submit()
	rec, err := r.tree.ReadRecord(plain.id)
	must(t, err)
	must(t, rec.Apply(statefs.Queued, statefs.CauseCancel, time.Now()))
	must(t, r.owner.WriteEnd(rec))
	must(t, r.owner.RemoveMarker(rec.ID, statefs.Queued))
	r.problem(r.do("POST", plain.path("/retry?step=split"), ""), 400, "job testrouter/streaming01 has no steps")
}
