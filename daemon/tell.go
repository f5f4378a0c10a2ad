package daemon

import (
	"slices"

	"github.com/jobdir/jobdir/events"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
)

// Everybody who follows is told of a transition by this one comparison at the end of a look, and not where it is made: the record has
// them all, whatever made them, and by then they are on the disk.

// tell publishes the transitions of an operation that nobody was told of yet.
func (d *Daemon) tell(op *operation) {
	d.tellSteps(op)
	all := op.rec.Transitions
	if len(all) == 0 || all[len(all)-1] == op.told {
		return
	}
	first := 1 + slices.Index(all, op.told) // 0 when nothing was told
	for _, t := range all[first:] {
		d.tellOne(op.rec, t)
	}
	op.told = all[len(all)-1]
}

// tellOne publishes one transition.
func (d *Daemon) tellOne(rec *statefs.Record, t statefs.Transited) {
	d.measure(rec, t)
	e := eventOf(rec, events.Transition)
	e.At, e.From, e.To, e.Cause = t.At, t.From, t.To, t.Cause
	if t.To == rec.Status {
		e.Error = rec.Error
	}
	if t.To.Terminal() || t.To == statefs.Trailing {
		e.Result, e.FinishedSeq = rec.Result, rec.FinishedSeq
	}
	d.config.Events.Publish(e)
}

func eventOf(rec *statefs.Record, kind events.Type) events.Event {
	lane, _ := rec.Takes()
	return events.Event{
		Type: kind, ID: rec.ID, Group: rec.Group, Job: rec.Job, Lane: lane, Key: rec.Key, Tags: rec.Tags, Run: rec.Run,
	}
}

// isNews reports whether an operation that is taken in hand was submitted since events were last published. What an earlier daemon had
// in hand has been told of; what was submitted while there was none has not.
func (d *Daemon) isNews(rec *statefs.Record) bool {
	if len(rec.Transitions) != 1 {
		return false
	}
	return isClosed(d.ready) || rec.CreatedAt.After(d.config.Events.Before())
}

// tellProgress returns what publishes the progress of a run, as often as it is written down, when it says something new.
func (d *Daemon) tellProgress(rec *statefs.Record) func(statefs.Progress) {
	e := eventOf(rec, events.Progress)
	var last statefs.Progress
	return func(p statefs.Progress) {
		if p.Same(&last) {
			return // a sign of life and nothing else
		}
		last = p
		e.At, e.Progress = p.At, &p
		d.config.Events.Publish(e)
	}
}

// tellSteps publishes which steps have changed since that was done last.
func (d *Daemon) tellSteps(op *operation) {
	if len(op.rec.Steps) == 0 {
		return
	}
	for i := range op.rec.Steps {
		now := &op.rec.Steps[i]
		before := steps.Find(op.toldSteps, now.Name)
		if before == nil || before.Status != now.Status || before.Run != now.Run {
			d.tellStep(op.rec, now)
		}
	}
	op.toldSteps = steps.Clone(op.rec.Steps)
}

// tellStep publishes the status of a step, which the record has and the disk too. It is called once for each change.
func (d *Daemon) tellStep(rec *statefs.Record, step *steps.Step) {
	e := eventOf(rec, events.StepChanged)
	e.At = d.owner.Now()
	e.Step, e.Status, e.Optional, e.Retries, e.ErrorCode = step.Name, step.Status, step.Optional, step.Retries, step.ErrorCode
	e.Number, e.Total = 1+slices.IndexFunc(rec.Steps, func(s steps.Step) bool { return s.Name == step.Name }), len(rec.Steps)
	e.Run = step.Run // an optional one has another than the operation
	d.config.Events.Publish(e)
}

func (d *Daemon) tellStall(rec *statefs.Record) {
	e := eventOf(rec, events.Stalled)
	stalled := rec.StalledAt != nil
	e.Stalled = &stalled
	d.config.Events.Publish(e)
}

// filesTold bounds the names in the event of a sweep.
const filesTold = 20

func (d *Daemon) tellSweep(findings []statefs.Finding) {
	s := &events.Sweep{Findings: len(findings)}
	for _, f := range findings[:min(len(findings), filesTold)] {
		s.Files = append(s.Files, f.File)
	}
	d.config.Events.Publish(events.Event{Type: events.Swept, Sweep: s})
}
