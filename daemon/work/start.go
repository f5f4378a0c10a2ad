package work

import (
	"context"
	"fmt"
	"io"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
	"github.com/jobdir/jobdir/stream"
)

// Spec describes a run that is about to begin, or that an earlier daemon began.
type Spec struct {
	// Record is that of the operation, with the start of the run in it.
	Record *statefs.Record
	// Job is the definition of the operation, needed for the run of a step only; Def is the
	// definition of the work: that of the job, or that of its step.
	Job, Def *catalog.Definition
	Params   catalog.Params
	// Handlers are those of the program.
	Handlers Handlers
	// Step is the name of the step that the run executes, required or optional; "" for a job without
	// steps.
	Step string
	// Log is the log that the work writes to. The caller closes it after the run.
	Log *stream.Writer
	// LaneEnv are the variables of its lane, as NAME=value.
	LaneEnv []string
	// Adopted is set for a run that an earlier daemon started.
	Adopted bool

	// The functions below are called by goroutines of the run. Begun is called, at the latest at the
	// end, when the work has all the files that it needs to begin. Changed is called when the phase or
	// the stall state changes, when a pause takes effect later than it was requested, and when the
	// work is over. Progressed is called with each progress that is written.
	Begun, Changed func()
	Progressed     func(statefs.Progress)
}

// New prepares a run without starting it.
func (h *Host) New(s Spec) (*Run, error) {
	t, err := h.newTask(&s)
	if err != nil {
		return nil, err
	}
	r := &Run{task: t, log: s.Log, begun: s.Begun, done: make(chan struct{})}
	r.report.run, r.report.step, r.report.output = r.number, r.StepName(), h.Owner.Output
	r.report.openItems = func() (io.WriteCloser, error) {
		return h.Owner.Output.AppendItems(r.id, r.optionalStepName())
	}
	r.pulse.report, r.changed, r.progress.write = &r.report, s.Changed, t.progressWriter(s.Progressed)
	r.onStopped, r.onPauseChange = s.Changed, r.setPaused
	r.detaching = make(chan struct{})
	if t.adopted && !t.optional {
		r.report.progress = t.earlierProgress(s.Record)
	}
	switch t.def.Work() {
	case catalog.WorkHandler:
		handler, ok := s.Handlers[t.def.Handler]
		if !ok {
			return nil, fmt.Errorf("job %s: this program has no handler %q", t.def.Address(), t.def.Handler)
		}
		r.do = handler.work
		if handler.Total != nil {
			r.report.total = handler.Total(t.params)
		}
	case catalog.WorkItems:
		r.do = itemsWork
	case catalog.WorkRun, catalog.WorkSteps:
		r.do = commandWork
	}
	if !t.isHandler() {
		if err := r.makeFolders(s.Record); err != nil {
			return nil, err
		}
	}
	if t.def.Work() == catalog.WorkItems {
		// Open it now, when a full disk only delays the start, and not when the first item ends.
		if r.report.items, err = r.report.openItems(); err != nil {
			return nil, err
		}
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	return r, nil
}

func (h *Host) newTask(s *Spec) (task, error) {
	rec, now := s.Record, h.Owner.Now()
	t := task{
		host: h, id: rec.ID, number: rec.Run, def: s.Def, params: s.Params, laneEnv: s.LaneEnv, adopted: s.Adopted,
		retryOf: rec.RetryOf, failedOnly: rec.FailedItems, redoFrom: rec.RedoFrom,
	}
	started := rec.StartedAt
	if s.Step != "" {
		at := steps.Find(rec.Steps, s.Step)
		var err error
		if t.step, err = newStep(s.Job, rec.Steps, at, s.Step); err != nil {
			return t, err
		}
		t.number, t.optional, started = at.Run, at.Optional, at.StartedAt
	}
	switch {
	case s.Adopted && t.optional:
		t.elapsed = max(now.Sub(*started), 0)
	case s.Adopted:
		t.elapsed = rec.ActiveTime(now)
	}
	return t, nil
}
