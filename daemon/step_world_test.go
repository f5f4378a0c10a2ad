package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/notify"
	"github.com/jobdir/jobdir/statefs/steps"
)

// stepPlace is a step of an operation.
type stepPlace struct {
	id   statefs.ID
	step string
}

// stepWorld is a daemon with random jobs, and a record of what their steps did.
type stepWorld struct {
	*bench

	t      *testing.T
	random *rand.Rand // used by the test's goroutine only
	ids    []statefs.ID
	asked  [][2]string // the name and text of each request made

	mu      sync.Mutex // guards the fields below
	ops     map[statefs.ID]*watchedSteps
	scripts map[string][]string // what a step of a job does at each start; it succeeds when the list is used up
	atWork  map[stepPlace]int
	holding map[stepPlace]bool
	hold    chan struct{} // closed to release the steps that hold
}

// watchedSteps is the last observed state of an operation.
type watchedSteps struct {
	graph steps.Graph
	last  *statefs.Record
}

// drawJob generates a random job and what its steps will do.
func (w *stepWorld) drawJob(i int) string {
	var text strings.Builder
	job := fmt.Sprintf("j%d", i)
	fmt.Fprintf(&text, "---\ngroup: test\nname: %s\nparams: {n: {type: integer, default: 0}}\nsteps:\n", job)
	count := 2 + w.random.IntN(6)
	optional := make([]bool, count)
	for s := range count {
		optional[s] = s > 0 && w.random.IntN(3) == 0
		var needs []string
		for before := range s {
			if (optional[s] || !optional[before]) && w.random.IntN(3) == 0 {
				needs = append(needs, fmt.Sprintf("s%d", before))
			}
		}
		fmt.Fprintf(&text, "  - {name: s%d, optional: %t", s, optional[s])
		if len(needs) > 0 {
			fmt.Fprintf(&text, ", needs: [%s]", strings.Join(needs, ", "))
		}
		if !optional[s] && w.random.IntN(8) == 0 {
			text.WriteString(", approve: true}\n") // a gate
			continue
		}
		if !optional[s] && w.random.IntN(8) == 0 {
			text.WriteString(", approve: true")
		}
		if w.random.IntN(8) == 0 {
			text.WriteString(`, when: "params.n > 4"`)
		}
		if w.random.IntN(3) == 0 {
			text.WriteString(`, outputs: [v]`)
		}
		if w.random.IntN(2) == 0 {
			fmt.Fprintf(&text, ", retry: {max_attempts: %d, initial: %s}", 2+w.random.IntN(2),
				[]string{"1ms", "10m"}[w.random.IntN(2)])
		}
		text.WriteString(", handler: scripted}\n")
		for range w.random.IntN(4) {
			plays := []string{"ok", "hold", "hold", "deaf", "busy", "busy", "fails", "person", "lacks", "panic", "warn"}
			w.scripts[job+fmt.Sprintf("s%d", s)] = append(w.scripts[job+fmt.Sprintf("s%d", s)], plays[w.random.IntN(len(plays))])
		}
	}
	return text.String()
}

// scripted is the work of every step.
func (w *stepWorld) scripted(_ context.Context, op *work.Op) error {
	play, until := w.begins(op)
	defer w.leaves(op)
	if play == "hold" {
		w.holds(op, true)
		defer w.holds(op, false)
		for open := true; open; {
			if err := op.Sleep(2 * time.Millisecond); err != nil {
				return err
			}
			open = !notify.IsClosed(until)
		}
	}
	switch play {
	case "deaf":
		<-time.After(10 * time.Millisecond) // no checkpoint
	case "busy":
		return &work.AttemptError{Err: errors.New("busy"), Class: "retryable"}
	case "warn":
		return &work.AttemptError{Err: errors.New("careful"), Class: "warn", RetryAfter: time.Millisecond}
	case "fails":
		return errors.New("fails")
	case "person":
		return work.NeedsPerson(errors.New("a person"))
	case "panic":
		panic("at the disco")
	}
	if play != "lacks" {
		return op.Result("v", 1)
	}
	return nil
}

// begins checks the start of a step against the record, and draws what the step does.
func (w *stepWorld) begins(op *work.Op) (play string, until chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := idOf(op)
	here := stepPlace{id, op.Step()}
	graph := w.catalogGraph(id)
	w.atWork[here]++
	for other, n := range w.atWork {
		if other.id == id && n > 0 && (other == here && n > 1 || other != here && !graph.Find(other.step).Optional &&
			!graph.Find(here.step).Optional) {
			w.t.Errorf("%v begins while %v is at work", here, other)
		}
	}
	rec := w.see(id)
	if rec == nil {
		w.t.Errorf("%v begins without a record", here)
		return "ok", w.hold
	}
	s := steps.Find(rec.Steps, here.step)
	if s.Status != steps.Running || s.Run != op.RunNumber() || s.StartedAt == nil {
		w.t.Errorf("%v begins with run %d, and the record says %+v", here, op.RunNumber(), s)
	}
	if graph.Find(here.step).Approve && s.ApprovedAt == nil {
		w.t.Errorf("%v begins without an approval", here)
	}
	wentBack := slices.ContainsFunc(rec.ActionRecords, func(a steps.ActionRecord) bool {
		return s.StartedAt != nil && !a.At.Before(*s.StartedAt) // a person did, after the start and before this look
	})
	if !graph.Ready(rec.Steps, here.step) && !wentBack {
		w.t.Errorf("%v begins before what it needs: %s", here, statuses(rec))
	}
	script := w.scripts[rec.Job+here.step]
	if len(script) == 0 {
		return "ok", w.hold
	}
	w.scripts[rec.Job+here.step] = script[1:]
	return script[0], w.hold
}

func idOf(op *work.Op) statefs.ID {
	id, err := statefs.ParseID(op.ID())
	if err != nil {
		panic(err)
	}
	return id
}

func (w *stepWorld) leaves(op *work.Op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.atWork[stepPlace{idOf(op), op.Step()}]--
}

func (w *stepWorld) holds(op *work.Op, yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holding[stepPlace{idOf(op), op.Step()}] = yes
}

// free releases the steps that hold now; freeAll also later ones.
func (w *stepWorld) free() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.hold)
	w.hold = make(chan struct{})
}

func (w *stepWorld) freeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !notify.IsClosed(w.hold) {
		close(w.hold)
	}
	clear(w.scripts)
}

// see reads a record and compares it with what was seen before. The caller holds mu.
func (w *stepWorld) see(id statefs.ID) *statefs.Record {
	rec, err := w.tree.ReadRecord(id)
	if err != nil {
		return nil
	}
	op := w.ops[id]
	if op == nil {
		op = &watchedSteps{graph: w.catalogGraph(id)}
		w.ops[id] = op
	}
	if op.last != nil {
		w.compare(op, rec)
	}
	op.last = rec
	w.checkActs(rec)
	return rec
}

func (w *stepWorld) catalogGraph(id statefs.ID) steps.Graph {
	_, job, _ := strings.Cut(id.Endpoint(), "-")
	return w.catalog.Get("test", job).Graph()
}

// compare checks that finished steps stay finished, unless a retry went back.
func (w *stepWorld) compare(op *watchedSteps, rec *statefs.Record) {
	back := map[string]bool{}
	for _, act := range rec.ActionRecords[len(op.last.ActionRecords):] {
		if act.Action == string(statefs.Retry) {
			for name := range op.graph.WithDependents(act.Step) {
				back[name] = true
			}
		}
	}
	for i, now := range rec.Steps {
		before := op.last.Steps[i]
		if before.Status.Done() && (now.Status != before.Status || now.Run != before.Run) && !back[now.Name] {
			w.t.Errorf("%s of %s was %s in run %d, and is %s in run %d: nobody went back to it, %+v", now.Name, rec.ID,
				before.Status, before.Run, now.Status, now.Run, rec.ActionRecords)
		}
	}
	if op.last.FinishedAt != nil && (string(op.last.Footer) != string(rec.Footer) ||
		op.last.FinishedSeq != rec.FinishedSeq || op.last.Status != rec.Status) {
		w.t.Errorf("%s ended as %s, number %d, and is %s, number %d", rec.ID, op.last.Status, op.last.FinishedSeq,
			rec.Status, rec.FinishedSeq)
	}
}

// checkActs checks that each request took effect once, in the state for which it was made.
func (w *stepWorld) checkActs(rec *statefs.Record) {
	for i, act := range rec.ActionRecords {
		if slices.ContainsFunc(rec.ActionRecords[:i], func(other steps.ActionRecord) bool {
			return other.Action == act.Action && other.RequestedAt.Equal(act.RequestedAt)
		}) {
			w.t.Errorf("%s was carried out twice: %+v", act.Action, rec.ActionRecords)
		}
		var entered time.Time
		for _, change := range rec.Transitions {
			if change.At.Before(act.At) && change.At.After(entered) {
				entered = change.At
			}
		}
		if act.RequestedAt.Add(fileTimeSlack).Before(entered) {
			w.t.Errorf("%s of %s was asked at %s, and counted in the state since %s", act.Action, act.Step,
				act.RequestedAt, entered)
		}
	}
}
