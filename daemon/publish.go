package daemon

import (
	"slices"

	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/steps"
)

// All transitions are published by this one comparison at the end of a reconcile, not where they
// are made. The record holds every transition, whatever made it, and by then it is on disk.

// publisher publishes as events what was committed.
type publisher struct{ *core }

// publish publishes the transitions of an operation that were not published yet.
func (pb *publisher) publish(op *operation) {
	pb.publishSteps(op)
	all := op.rec.Transitions
	if len(all) == 0 || all[len(all)-1] == op.published {
		return
	}
	first := 1 + slices.Index(all, op.published) // 0 when none was published
	for _, t := range all[first:] {
		pb.publishTransition(op.rec, t)
	}
	op.published = all[len(all)-1]
}

// publishTransition publishes one transition.
func (pb *publisher) publishTransition(rec *statefs.Record, t statefs.PastTransition) {
	pb.measureDurations(rec, t)
	e := events.Of(rec, events.Transition)
	e.At, e.From, e.To, e.Cause = t.At, t.From, t.To, t.Cause
	if t.To == rec.Status {
		e.Error = rec.Error
	}
	if t.To.Terminal() || t.To == statefs.Trailing {
		e.Result, e.FinishedSeq = rec.Result, rec.FinishedSeq
	}
	pb.config.Events.Publish(e)
}

// isUnpublished reports whether a newly adopted operation was submitted after events were last
// published. Operations that an earlier daemon managed have been published; those submitted while
// no daemon ran have not.
func (pb *publisher) isUnpublished(rec *statefs.Record) bool {
	if len(rec.Transitions) != 1 {
		return false
	}
	return isClosed(pb.ready) || rec.CreatedAt.After(pb.config.Events.Before())
}

// progressPublisher returns a function that publishes the progress of a run each time it is
// written, unless only its time has changed.
func (pb *publisher) progressPublisher(rec *statefs.Record) func(statefs.Progress) {
	e := events.Of(rec, events.Progress)
	var last statefs.Progress
	return func(p statefs.Progress) {
		if p.Same(&last) {
			return // only a heartbeat
		}
		last = p
		e.At, e.Progress = p.At, &p
		pb.config.Events.Publish(e)
	}
}

// publishSteps publishes the steps that changed since the last call.
func (pb *publisher) publishSteps(op *operation) {
	if len(op.rec.Steps) == 0 {
		return
	}
	for i := range op.rec.Steps {
		now := &op.rec.Steps[i]
		before := steps.Find(op.publishedSteps, now.Name)
		if before == nil || before.Status != now.Status || before.Run != now.Run {
			pb.publishStep(op.rec, now)
		}
	}
	op.publishedSteps = steps.Clone(op.rec.Steps)
}

// publishStep publishes the status of a step that is already in the record on disk. It is called
// once per change.
func (pb *publisher) publishStep(rec *statefs.Record, step *steps.Step) {
	e := events.Of(rec, events.StepChanged)
	e.At = pb.owner.Now()
	e.Step, e.Status, e.Optional, e.Retries, e.ErrorCode = step.Name, step.Status, step.Optional,
		step.Retries, step.ErrorCode
	if step.ErrorCode != "" {
		e.Error = &statefs.Fault{Code: step.ErrorCode, Message: step.ErrorMessage}
	}
	e.Number, e.Total = stepNumber(rec.Steps, step.Name), len(rec.Steps)
	e.Run = step.Run // an optional step has a run number of its own
	pb.config.Events.Publish(e)
}

func (pb *publisher) publishStall(rec *statefs.Record) {
	e := events.Of(rec, events.Stalled)
	stalled := rec.StalledAt != nil
	e.Stalled = &stalled
	pb.config.Events.Publish(e)
}

// maxPublishedFiles limits the file names in the event of a sweep.
const maxPublishedFiles = 20

func (pb *publisher) publishSweep(findings []statefs.Finding) {
	s := &api.EventSweep{Findings: len(findings)}
	for _, f := range findings[:min(len(findings), maxPublishedFiles)] {
		s.Files = append(s.Files, f.File)
	}
	pb.config.Events.Publish(api.Event{Type: events.Swept, Sweep: s})
}
