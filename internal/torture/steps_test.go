package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// chainNeeds are the steps of the job chain with their needs.
var chainNeeds = map[string][]string{
	"one": nil, "two": {"one"}, "agree": {"two"}, "fails": {"agree"}, "last": {"fails"}, "aside": {"one"},
	"after": {"aside", "last"},
}

// playSteps runs an operation through its steps: two, a gate, a step that fails, is retried and then skipped,
// a last one, and optional steps that end after it.
func playSteps(s *play) {
	id := s.submit("chain")
	s.marker(id, statefs.WaitingApproval)
	s.requestStepAction(id, statefs.Approve)
	s.marker(id, statefs.FailedManual)
	s.requestStepAction(id, statefs.Retry)
	s.marker(id, statefs.FailedManual)
	s.requestStepAction(id, statefs.Skip)
	s.end(id)
	until(s.t, "the optional steps end", func() bool {
		left, err := filepath.Glob(filepath.Join(s.p.dir, "jobs", id.String()+".*"))
		return err == nil && len(left) == 0
	})
}

func (s *play) marker(id statefs.ID, state statefs.State) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("%s is %s", id, state), func() bool {
		_, err := os.Lstat(filepath.Join(s.p.dir, "jobs", statefs.MarkerName(id, state)))
		return err == nil
	})
}

// requestStepAction makes a request as a person does and returns when it took effect.
func (s *play) requestStepAction(id statefs.ID, ask statefs.Action) {
	s.t.Helper()
	sent := s.p.disk.Len()
	_, err := s.d.Steps(id).Request(s.t.Context(), ask, statefs.Args{By: "anna"}, patience)
	must(s.t, err)
	s.note(acknowledgement{sent: sent, answered: s.p.disk.Len(), id: id, action: ask})
}

// stepsOnDisk are the steps in the record of an operation.
type stepsOnDisk []struct {
	Name, Status string
	Run          int
}

func (s stepsOnDisk) done(name string) bool {
	for _, step := range s {
		if step.Name == name {
			return step.Status == "succeeded" || step.Status == "skipped"
		}
	}
	return false
}

// check checks that the record contains the starts of these steps, and that earlier steps are done.
func (s stepsOnDisk) check(begun map[string]int) error {
	var errs []error
	for _, step := range s {
		if begun[step.Name] > step.Run {
			errs = append(errs, fmt.Errorf("step %s has begun as run %d, and the record says %+v", step.Name,
				begun[step.Name], step))
		}
		for _, need := range chainNeeds[step.Name] {
			if begun[step.Name] > 0 && !s.done(need) {
				errs = append(errs, fmt.Errorf("step %s has begun, and %s before it is not done: %+v", step.Name, need, s))
			}
		}
	}
	return errors.Join(errs...)
}

// begunSteps are the steps that a daemon has started after a crash.
type begunSteps struct {
	mu  sync.Mutex
	all map[string][]string // by operation
}

// handler records a step, which succeeds.
func (b *begunSteps) handler() work.Handler {
	return work.Handler{Run: func(_ context.Context, op *work.Op) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.all == nil {
			b.all = make(map[string][]string)
		}
		b.all[op.ID()] = append(b.all[op.ID()], op.Step())
		return nil
	}}
}

// stepsEnd acts as a person until each operation with steps has ended, and compares the result with the state
// after the crash: finished steps did not start again, all others started once, and there was one end.
func (e *expectations) stepsEnd(c *client.Client, dir string, begun *begunSteps) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience/2)
	defer cancel()
	tree, err := statefs.Open(dir, statefs.Options{Durability: statefs.Process})
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }() // opened for reading
	var errs []error
	for id, op := range e.ops {
		if op.steps == nil || !op.submitted {
			continue
		}
		rec, err := toItsEnd(ctx, c, tree, id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		begun.mu.Lock()
		after := slices.Clone(begun.all[id.String()])
		begun.mu.Unlock()
		for i, name := range after {
			if op.steps.done(name) || slices.Contains(after[:i], name) {
				errs = append(errs, fmt.Errorf("%s: the steps %v have begun after the crash, which left %+v", id, after, op.steps))
			}
		}
		for _, s := range rec.Steps {
			if !s.Status.Done() || !op.steps.done(s.Name) && s.Status == "succeeded" && s.Name != "agree" &&
				!slices.Contains(after, s.Name) {
				errs = append(errs, fmt.Errorf("%s: step %s is %s, %v have begun after the crash, which left %+v", id, s.Name,
					s.Status, after, op.steps))
			}
		}
		errs = append(errs, endsOnce(ctx, c, id))
	}
	return errors.Join(errs...)
}

// toItsEnd approves waiting steps and retries failed ones, until all steps have ended.
func toItsEnd(ctx context.Context, c *client.Client, tree *statefs.Tree, id statefs.ID) (*statefs.Record, error) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		sight, err := tree.ObserveAll(id)
		if err != nil {
			return nil, err
		}
		rec, err := tree.ReadRecord(id)
		if err != nil {
			return nil, err
		}
		var state statefs.State
		switch {
		case len(sight.States) == 1:
			state = sight.States[0]
		case len(sight.States) == 0 && rec.Status == statefs.Completed && !rec.Trailing:
			return rec, nil
		}
		switch state {
		case statefs.WaitingApproval:
			_, _ = c.Steps(id).Request(ctx, statefs.Approve, statefs.Args{}, 0) // a request from before the crash may be faster
		case statefs.FailedManual:
			_, _ = c.Steps(id).Request(ctx, statefs.Retry, statefs.Args{}, 0)
		case statefs.Scheduled, statefs.Queued, statefs.Running, statefs.Paused, statefs.FailedRetryable, statefs.Trailing,
			statefs.Completed, statefs.Cancelled, statefs.Failed:
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("%s does not end: it is %s, markers %q, steps %+v", id, rec.Status, sight.States, rec.Steps)
		}
	}
}

// endsOnce checks that the feed contains the end of an operation once.
func endsOnce(ctx context.Context, c *client.Client, id statefs.ID) error {
	for {
		all, _, err := c.Finished(ctx, 0, time.Second)
		if err != nil {
			return err
		}
		ends := 0
		for _, end := range all {
			if end.ID == id && !end.NeedsPerson {
				ends++
			}
		}
		if ends == 1 {
			return nil
		}
		if ends > 1 || ctx.Err() != nil {
			return fmt.Errorf("%s is in the feed %d times", id, ends)
		}
	}
}
