package statefs

import (
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs/steps"
)

// TestFreshen: newer values in the file replace those of the record, and newer values in the record
// stay.
func TestFreshen(t *testing.T) {
	t.Parallel()
	o := own(t)
	rec := submit(t, o.Tree)
	o.Freshen(rec)
	if rec.Progress != nil || rec.HeartbeatAt != nil {
		t.Errorf("without a file: %+v, %v", rec.Progress, rec.HeartbeatAt)
	}
	check(t, o.Output.WriteProgress(rec.ID, Progress{Done: 3, At: testTime}))
	o.Freshen(rec)
	if rec.Progress == nil || rec.Progress.Done != 3 || !rec.HeartbeatAt.Equal(testTime) {
		t.Errorf("the file is newer: %+v, %v", rec.Progress, rec.HeartbeatAt)
	}
	later := testTime.Add(time.Second)
	rec.Progress, rec.HeartbeatAt = &Progress{Done: 4, At: later}, &later
	if o.Freshen(rec); rec.Progress.Done != 4 || !rec.HeartbeatAt.Equal(later) {
		t.Errorf("the record is newer: %+v, %v", rec.Progress, rec.HeartbeatAt)
	}
	check(t, o.Output.WriteProgress(rec.ID, Progress{Done: 5, At: later.Add(time.Second)}))
	rec.Status = Completed
	if o.Freshen(rec); rec.Progress.Done != 4 {
		t.Errorf("it has ended: %+v", rec.Progress)
	}
}

// TestProgressKeepsToTheSteps: the work may have reported its progress before its step ended; the
// record has the finished steps.
func TestProgressKeepsToTheSteps(t *testing.T) {
	t.Parallel()
	o := own(t)
	rec := submit(t, o.Tree)
	rec.Steps = []steps.Step{
		{Name: "ingest", Status: steps.Succeeded},
		{Name: "split", Status: steps.Running},
		{Name: "extra", Optional: true},
	}
	five := int64(5)
	check(t, o.Output.WriteProgress(rec.ID, Progress{
		Done: 0, Total: &five, At: testTime,
		Step: &StepProgress{Name: "split", Done: 3},
	}))
	if o.Freshen(rec); rec.Progress.Done != 1 || *rec.Progress.Total != 2 || rec.Progress.Step == nil {
		t.Errorf("at work: %+v", rec.Progress)
	}
	rec.Steps[1].Status, rec.Phase = steps.Succeeded, "split_done"
	if o.Freshen(rec); rec.Progress.Done != 2 || rec.Progress.Step != nil || rec.Progress.Phase != "split_done" {
		t.Errorf("done: %+v", rec.Progress)
	}
}

func TestFraction(t *testing.T) {
	t.Parallel()
	number := func(n int64) *int64 { return &n }
	for _, test := range []struct {
		p     Progress
		want  float64
		known bool
	}{
		{Progress{}, 0, false},
		{Progress{Done: 3, Total: number(0)}, 0, false},
		{Progress{Done: 3, Total: number(4)}, 0.75, true},
		{Progress{Done: 9, Total: number(4)}, 1, true},
		{Progress{Done: 1, Total: number(4), Step: &StepProgress{Name: "split", Done: 5, Total: number(10)}}, 0.375, true},
		{Progress{Done: 1, Total: number(4), Step: &StepProgress{Name: "split", Done: 5}}, 0.25, true},
		{Progress{Done: 1, Total: number(4), Step: &StepProgress{Name: "split", Done: 50, Total: number(10)}}, 0.5, true},
		{Progress{Done: 4, Total: number(4), Step: &StepProgress{Name: "side", Done: 5, Total: number(10)}}, 1, true},
	} {
		if got, known := test.p.Fraction(); got != test.want || known != test.known {
			t.Errorf("%+v: %v, %v, want %v, %v", test.p, got, known, test.want, test.known)
		}
	}
}

func TestSameProgress(t *testing.T) {
	t.Parallel()
	number := func(n int64) *int64 { return &n }
	base := func() *Progress {
		return &Progress{Done: 1, Total: number(4), Phase: "a", Step: &StepProgress{
			Name: "split", Done: 5,
			Total: number(10), Phase: "b",
		}}
	}
	later := base()
	later.At = testTime
	if !base().Same(later) || !(&Progress{}).Same(&Progress{At: testTime}) {
		t.Error("the time is no difference")
	}
	for name, change := range map[string]func(*Progress){
		"done": func(p *Progress) { p.Done++ }, "total": func(p *Progress) { p.Total = number(5) },
		"no total": func(p *Progress) { p.Total = nil },
		"phase":    func(p *Progress) { p.Phase = "" }, "no step": func(p *Progress) { p.Step = nil },
		"step":      func(p *Progress) { p.Step.Name = "x" },
		"step done": func(p *Progress) { p.Step.Done++ }, "step total": func(p *Progress) { p.Step.Total = nil },
		"step phase": func(p *Progress) { p.Step.Phase = "" },
	} {
		other := base()
		if change(other); base().Same(other) || other.Same(base()) {
			t.Errorf("%s is a difference", name)
		}
	}
}
