package control

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// lane sends a request about a lane and returns the lane in the answer.
func (r *rig) lane(method, path, body string) map[string]any {
	r.t.Helper()
	a := r.do(method, "/api/v1/lanes/"+path, body)
	if a.status != 200 {
		r.t.Fatalf("%s %s %s: %d %s", method, path, body, a.status, a.body)
	}
	return a.json(r.t)
}

func (r *rig) laneFile(name string) (statefs.LaneValue, error) {
	r.t.Helper()
	f, ok := statefs.ParseLaneFile(name)
	if !ok {
		r.t.Fatal(name)
	}
	return r.tree.Lanes.Read(f)
}

func TestLanesAreHeldByEndpoint(t *testing.T) {
	t.Parallel()
	r := setup(t)
	if out := r.lane("POST", "cookie/pause",
		`{"reason": "new cookies", "for": "15m"}`); fmt.Sprint(out["paused"]) == "<nil>" {
		t.Errorf("%v", out)
	}
	v, err := r.laneFile("cookie.paused")
	if left := time.Until(*v.Hold.Until); err != nil || v.Hold.Reason != "new cookies" || left > 15*time.Minute ||
		left < 10*time.Minute {
		t.Errorf("%+v %v", v, err)
	}
	r.lane("POST", "cookie/close?until=2999-01-01T00:00:00Z&reason=inventory", "")
	if v, err := r.laneFile("cookie.closed"); err != nil || v.Hold.Until.Year() != 2999 || v.Hold.Reason != "inventory" {
		t.Errorf("%+v %v", v, err)
	}
	if out := r.lane("POST", "cookie/resume", ""); out["paused"] != nil || out["closed"] == nil {
		t.Errorf("%v", out)
	}
	if out := r.lane("POST", "cookie/open", `{}`); out["closed"] != nil {
		t.Errorf("%v", out)
	}
	r.lane("POST", "cookie/open", "") // it is open already
	if out := r.lane("POST", "all/pause", ""); out["paused"] == nil || out["lanes"] == nil {
		t.Errorf("%v", out)
	}
	if v, err := r.laneFile("all.paused"); err != nil || v.Hold.Until != nil {
		t.Errorf("%+v %v", v, err)
	}
	if out := r.lane("POST", "all/resume", ""); out["paused"] != nil {
		t.Errorf("%v", out)
	}
}

func TestLanesGetACapacityByEndpoint(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for _, c := range []struct {
		body string
		says any
		want int
	}{
		{`{"capacity": 4}`, 4.0, 4},
		{`{"capacity": 0}`, 0.0, 0},
		{`{"capacity": null}`, nil, -1},
		{`{"capacity": "unlimited"}`, nil, -1},
	} {
		if out := r.lane("PATCH", "cookie", c.body); out["capacity"] != c.says {
			t.Errorf("%s: %v", c.body, out)
		}
		if v, err := r.laneFile("cookie.capacity"); err != nil || v.Capacity != c.want {
			t.Errorf("%s: %+v %v", c.body, v, err)
		}
	}
	if out := r.lane("PATCH", "cookie", `{"capacity": "configured"}`); out["capacity"] != 1.0 {
		t.Errorf("%v", out)
	}
	r.lane("PATCH", "all", `{"capacity": 7}`)
	for name, want := range map[string]bool{"cookie": true, "default": true, "gone": false} {
		if v, err := r.laneFile(name + ".capacity"); (err == nil) != want || want && v.Capacity != 7 {
			t.Errorf("%s: %+v %v", name, v, err)
		}
	}
}

func TestRefusalsOfLanes(t *testing.T) {
	t.Parallel()
	r := setup(t)
	must(t, os.Mkdir(filepath.Join(r.tree.Lanes.Dir(), "default.closed"), 0o700))
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "nowhere", "", 404, "There is no lane 'nowhere'; the lanes are cookie, default, gone"},
		{"POST", "nowhere/pause", "", 404, "There is no lane 'nowhere'"},
		{"POST", "gone/pause", "", 409, "Lane 'gone' is not in the configuration"},
		{"PATCH", "gone", `{"capacity": 1}`, 409, "Lane 'gone' is not in the configuration"},
		{"GET", "cookie?x=1", "", 400, "Unknown parameter 'x'"},
		{"PATCH", "cookie?capacity=1", `{"capacity": 1}`, 400, "Unknown parameter 'capacity'"},
		{"PATCH", "cookie", "", 400, "Missing member 'capacity'"},
		{"PATCH", "cookie", "[1]", 400, "JSON object"},
		{"PATCH", "cookie", `{"capacity": 1, "max_starts": 2}`, 400, "Unknown member 'max_starts'"},
		{"PATCH", "cookie", `{"capacity": -1}`, 400, "Invalid parameter 'capacity': -1 is neither"},
		{"PATCH", "cookie", `{"capacity": "many"}`, 400, `Invalid parameter 'capacity': "many" is neither`},
		{"PATCH", "cookie", `{"capacity": "4"}`, 400, "is neither"},
		{"PATCH", "cookie", `{"capacity": 1.5}`, 400, "1.5 is neither"},
		{"PATCH", "cookie", `{"capacity": 1e6}`, 400, "is neither"},
		{"PATCH", "cookie", `{"capacity": 1000001}`, 400, "is neither"},
		{"PATCH", "cookie", `{"capacity": [4]}`, 400, "is neither"},
		{"PATCH", "cookie", `{"capacity": 1, "capacity": 2}`, 400, "capacity"},
		{"POST", "cookie/pause?for=soon", "", 400, "Invalid parameter 'for': \"soon\" is not a time"},
		{"POST", "cookie/pause?for=0s", "", 400, "Invalid parameter 'for'"},
		{"POST", "cookie/pause?for=99999d", "", 400, "Invalid parameter 'for'"},
		{"POST", "cookie/pause?until=tomorrow", "", 400, "Invalid parameter 'until': \"tomorrow\" is not a time"},
		{
			"POST", "cookie/pause?until=2001-01-01T00:00:00Z", "", 400,
			"Invalid parameter 'until': 2001-01-01T00:00:00Z is over",
		},
		{"POST", "cookie/pause?for=1m", `{"until": "2999-01-01T00:00:00Z"}`, 400, "give it or 'for', not both"},
		{"POST", "cookie/pause?for=1m", `{"for": "2m"}`, 400, "'for' is given 2 times"},
		{"POST", "cookie/pause?reason=" + strings.Repeat("x", 1001), "", 400, "'reason': it is longer than 1000 bytes"},
		{"POST", "cookie/pause", `[]`, 400, "must be a JSON object of strings"},
		{"POST", "cookie/resume?reason=x", "", 400, "Unknown parameter 'reason'"},
		{"POST", "default/close", "", 409, "lanes/default.closed is no regular file"},
		{"DELETE", "cookie", "", 405, ""},
	} {
		r.problem(r.do(c.method, "/api/v1/lanes/"+c.path, c.body), c.status, c.want)
	}
	if files, _, err := r.tree.Lanes.List(); err != nil || len(files) != 1 {
		t.Errorf("something was written: %v %v", files, err)
	}
}

func TestReadyzSaysWhatIsWrongWithLanes(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.fakeDaemon().mu.Lock()
	r.fakeDaemon().lanes = statefs.LanesStatus{
		Lanes: []statefs.LaneStatus{
			{
				Name: "a", Problems: []statefs.LaneProblem{{File: "lanes/a.capacity", Reason: "capacity \"many\" is ..."}},
				Breaker: &statefs.BreakerStatus{State: "closed"},
			},
			{Name: "b", Paused: &statefs.LaneHold{Reason: "5 failures"}, Breaker: &statefs.BreakerStatus{State: "open"}},
		},
		Problems: []statefs.LaneProblem{{File: "lanes/x.paused", Reason: "there is no lane"}},
	}
	r.fakeDaemon().mu.Unlock()
	a := r.get("/readyz")
	want := `"lanes":[{"error":"capacity \"many\" is ...","file":"lanes/a.capacity","lane":"a"},` +
		`{"breaker":"open","error":"its breaker has paused it: 5 failures","lane":"b"},{"error":"there is no lane","file":"lanes/x.paused","lane":""}]`
	if a.status != 200 || !strings.Contains(a.body, want) {
		t.Errorf("%d %s, want %s", a.status, a.body, want)
	}
}
