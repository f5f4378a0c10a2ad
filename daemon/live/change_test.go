package live

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// transit adds the transition between running and paused to a record.
func transit(rec *statefs.Record, at time.Time) error {
	cause := map[statefs.State]statefs.Cause{
		statefs.Queued: statefs.CauseStart, statefs.Running: statefs.CausePause, statefs.Paused: statefs.CauseResume,
	}[rec.Status]
	return rec.Apply(rec.Status, cause, at)
}

// TestChangesHaveWhatIsDurableOnce changes a record at random and commits it now and then. The changes must have each
// transition and each new status of a step once, in order, when a commit has made them durable and never before.
func TestChangesHaveWhatIsDurableOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var table Table[int]
		var handedOn []statefs.PastTransition
		handedStatus := map[string]steps.Status{}
		table.Subscribe(func(c Change) {
			handedOn = append(handedOn, c.Transitions()...)
			for _, step := range c.Steps() {
				if handedStatus[step.Name] == step.Status {
					t.Fatalf("step %s is %s again", step.Name, step.Status)
				}
				handedStatus[step.Name] = step.Status
			}
		})
		rec := statefs.UnknownRecord(idOf(1), noon)
		rec.Status = statefs.Queued
		for _, name := range []string{"a", "b"} {
			rec.Steps = append(rec.Steps, steps.Step{Name: name, Status: steps.Pending})
			handedStatus[name] = steps.Pending
		}
		var all, durable []statefs.PastTransition // since the operation is known
		moves := 0
		move := func() {
			at := noon.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "clock")) * time.Second) // it may be set back
			moves++
			at = at.Add(time.Duration(moves)) // no two transitions are the same
			if err := transit(rec, at); err != nil {
				t.Fatal(err)
			}
			all = append(all, rec.Transitions[len(rec.Transitions)-1])
		}
		for range rapid.IntRange(0, 2).Draw(t, "transitions that were published before") {
			move()
		}
		all = nil
		s := (&Snapshot{ID: rec.ID}).Committed(rec).Next(rec, rec.Status)
		table.Commit(s, rec) // it is not in the table: nothing
		added := rapid.Bool().Draw(t, "added")
		if added {
			table.Add(1, s)
		}
		for range rapid.IntRange(0, 30).Draw(t, "changes") {
			switch rapid.SampledFrom([]string{"transition", "step", "put", "commit", "read again"}).Draw(t, "change") {
			case "transition":
				move()
			case "step":
				rec.Steps = steps.Clone(rec.Steps)
				step := &rec.Steps[rapid.IntRange(0, 1).Draw(t, "step")]
				step.Status = rapid.SampledFrom([]steps.Status{steps.Pending, steps.Running, steps.Succeeded}).Draw(t, "status")
			case "put":
				s = s.Next(rec, rec.Status)
				table.Put(s)
			case "commit":
				if added {
					s = s.Next(rec, rec.Status).Committed(rec)
					table.Commit(s, rec)
					durable = slices.Clone(all)
				}
			case "read again": // as the record of an operation that only waited
				data, err := json.Marshal(rec)
				if rec = new(statefs.Record); err != nil || json.Unmarshal(data, rec) != nil {
					t.Fatal(err)
				}
			}
			checkHandedOn(t, handedOn, durable)
		}
		table.Remove(s, rec)
		checkHandedOn(t, handedOn, all)
		for _, step := range rec.Steps {
			if handedStatus[step.Name] != step.Status {
				t.Fatalf("step %s is %s, and it was handed on as %s", step.Name, step.Status, handedStatus[step.Name])
			}
		}
	})
}

func checkHandedOn(t *rapid.T, got, want []statefs.PastTransition) {
	t.Helper()
	if !slices.EqualFunc(got, want, func(a, b statefs.PastTransition) bool {
		return a.At.Equal(b.At) && a.From == b.From && a.To == b.To && a.Cause == b.Cause
	}) {
		t.Fatalf("handed on: %v\nwant: %v", got, want)
	}
}

// A record keeps only its newest transitions.
func TestChangesOfALongRecord(t *testing.T) {
	t.Parallel()
	var table Table[int]
	handedOn := 0
	table.Subscribe(func(c Change) { handedOn += len(c.Transitions()) })
	rec := statefs.UnknownRecord(idOf(1), noon)
	rec.Status = statefs.Queued
	s := (&Snapshot{ID: rec.ID}).Next(rec, rec.Status)
	table.Add(1, s)
	for n := 1; n <= 1200; n++ {
		if err := transit(rec, noon.Add(time.Duration(n)*time.Second)); err != nil {
			t.Fatal(err)
		}
		s = s.Next(rec, rec.Status).Committed(rec)
		table.Commit(s, rec)
		if handedOn != n {
			t.Fatalf("%d of %d transitions are handed on", handedOn, n)
		}
	}
}
