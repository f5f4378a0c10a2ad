package steps

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

func TestViews(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 22, 11, 0, 0, 0, time.UTC)
	ended, later := began.Add(1500*time.Millisecond), began.Add(4*time.Second)
	list := []Step{
		{Name: "ingest", Status: Succeeded, StartedAt: &began, EndedAt: &ended},
		{Name: "split", Status: Running, StartedAt: &began, EndedAt: &ended},
		{Name: "publish", Status: Pending},
		{Name: "back", Status: Running, StartedAt: &later},
		{Name: "lost", Status: Pending, StartedAt: &began},
		{Name: "left", Status: Skipped, StartedAt: &began, EndedAt: &ended},
	}
	graph := Graph{
		{Name: "ingest"},
		{Name: "split", Needs: []string{"ingest"}},
		{Name: "publish", Needs: []string{"split"}, Approve: true},
	}
	views := Views(list, graph, began.Add(3*time.Second))
	var got []any
	for _, v := range views {
		seconds := -1.0
		if v.Seconds != nil {
			seconds = *v.Seconds
		}
		got = append(got, v.Number, v.Name, seconds, len(v.Needs), v.Approve)
	}
	want := []any{
		1, "ingest", 1.5, 0, false, 2, "split", 3.0, 1, false, 3, "publish", -1.0, 1, true, 4, "back", 0.0, 0,
		false, 5, "lost", -1.0, 0, false, 6, "left", -1.0, 0, false,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if Views(nil, graph, began) != nil {
		t.Error("no steps are shown as some")
	}
}

func TestSettled(t *testing.T) {
	t.Parallel()
	at := time.Now()
	list := []Step{
		{
			Name: "ingest", Status: Succeeded, Run: 1, Outputs: map[string]json.RawMessage{"n": []byte("3")}, StartedAt: &at,
			LogTo: 9, Retries: 2,
		},
		{Name: "split", Status: Skipped, Reason: "none", Run: 2},
		{
			Name: "publish", Status: FailedManual, Run: 3, ErrorCode: "x", Attempts: 2, ApprovedBy: "a", ApprovedAt: &at,
			Lane: "l", Limits: []string{"m"},
		},
		{Name: "extra", Status: Running, Optional: true, Log: "x.log"},
	}
	got := CarryOver(list)
	want := []Step{
		{
			Name: "ingest", Status: Succeeded, Outputs: map[string]json.RawMessage{"n": []byte("3")},
			StartedAt: &at, Retries: 2,
		},
		{Name: "split", Status: Skipped, Reason: "none"},
		{Name: "publish", Status: Pending, Lane: "l", Limits: []string{"m"}},
		{Name: "extra", Status: Pending, Optional: true},
	}
	if !reflect.DeepEqual(got, want) || list[0].Run != 1 || list[2].Status != FailedManual {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
