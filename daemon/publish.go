package daemon

import (
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/live"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/steps"
)

// publisher publishes as events what was committed.
type publisher struct{ *core }

// publish publishes the steps and the transitions that a change of the table made durable.
func (pb *publisher) publish(c live.Change) {
	for _, step := range c.Steps() {
		pb.publishStep(c.Record, step)
	}
	for _, t := range c.Transitions() {
		pb.publishTransition(c.Record, t)
	}
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

// measureDurations records the queue time of an operation when it starts, and its working time when
// it ends.
func (pb *publisher) measureDurations(rec *statefs.Record, t statefs.PastTransition) {
	switch {
	case t.From == statefs.Queued && t.To == statefs.Running:
		if at, ok := rec.QueuedAt(t); ok {
			pb.live.Counters().AddWait(rec.Lane, t.At.Sub(at), pb.owner.Now())
		}
	case (t.To.Terminal() && t.From != statefs.Trailing || t.To == statefs.Trailing) && rec.StartedAt != nil:
		pb.live.Counters().AddRun(rec.Lane, rec.ActiveTime(t.At), pb.owner.Now())
	}
}

// isUnpublished reports whether a newly adopted operation was submitted after events were last
// published. Operations that an earlier daemon managed have been published. An operation that was
// submitted while no daemon ran has not, nor has a submit whose start a replay took back.
func (pb *publisher) isUnpublished(rec *statefs.Record) bool {
	if len(rec.Transitions) == 0 || rec.Transitions[0].Cause != statefs.CauseSubmit {
		return false
	}
	_, starts := pb.admission.submitted.get(rec.ID)
	submitted := len(rec.Transitions) == 1
	return starts || submitted && pb.isReady() ||
		(submitted || pb.owner.Journal.TookBack(rec.ID)) && rec.CreatedAt.After(pb.config.Events.Before())
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

// publishStep publishes the status of a step.
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
	e.Stalled = new(rec.StalledAt != nil)
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
