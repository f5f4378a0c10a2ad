package daemon

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// poison is how many runs in a row may die without having finished an item before a person must look.
const poison = 3

// retryable are the codes of attempts that may go well another time, unless the job says otherwise: the work died, hung, or took too long.
// An exit code is the work's own verdict, and is not tried again.
var retryable = map[string]bool{"signal": true, "lost": true, "keeper_died": true, "stalled": true, "timeout": true}

// deaths are the codes that say that the work died without a verdict of its own or of the daemon.
var deaths = map[string]bool{"signal": true, "lost": true, "keeper_died": true}

// final are the codes of what ends an operation whatever its job says.
var final = map[string]bool{"queue_timeout": true, "deadline_exceeded": true}

// attempted is what is known of an operation when one of its attempts has failed.
type attempted struct {
	code           string
	class          catalog.Class // "" when nobody says
	asked          bool          // the work asks for a time at which it wants to be tried again
	attempts, most int
	deaths         int // runs in a row that died without having finished an item, this one too
}

// after says by what cause an operation goes on when an attempt has failed: CauseRescued when it is tried again, at once or later. It is a
// pure function.
func (a attempted) after() statefs.Cause {
	switch {
	case final[a.code]:
		return statefs.CauseExpired
	case a.class == catalog.ClassManual:
		return statefs.CauseNeedsPerson
	case a.class == catalog.ClassWarn:
		return statefs.CauseRescued
	case deaths[a.code] && a.deaths >= poison:
		return statefs.CauseNeedsPerson
	case a.class == "" && !a.asked && !retryable[a.code], a.attempts >= a.most:
		return statefs.CauseFailed
	}
	return statefs.CauseRescued
}

// failedAttempt notes that an attempt failed with err, says so, and returns the cause by which the operation goes on.
func (d *Daemon) failedAttempt(op *operation, err error) statefs.Cause {
	rec, r := op.rec, op.run
	class := r.classOf(rec, err)
	r.class = class
	if class == catalog.ClassWarn {
		rec.Warnings++
	} else {
		rec.Attempts++
	}
	rec.RedoFrom = r.number + 1
	rec.Deaths = r.deathsAfter(rec.Deaths, rec.Error.Code, class)
	a := attempted{
		code: rec.Error.Code, class: class, asked: r.askedWait(err) > 0,
		attempts: rec.Attempts, most: r.def.Retry.MaxAttempts, deaths: rec.Deaths,
	}
	cause := a.after()
	if r.step.def != nil && cause == statefs.CauseFailed {
		cause = statefs.CauseNeedsPerson // what a step is not tried again for is left to a person
	}
	said := attemptLine(rec, cause, a)
	if cause == statefs.CauseNeedsPerson {
		rec.Reason = "poison"
		if class == catalog.ClassManual || r.step.def != nil && !(deaths[a.code] && a.deaths >= poison) {
			rec.Reason = "manual"
		}
	}
	if cause == statefs.CauseRescued {
		cause, said = d.nextAttempt(op, a, err)
		if r.step.def != nil && cause == statefs.CauseFailed {
			cause, rec.Reason = statefs.CauseNeedsPerson, "manual"
		}
	}
	d.say(op, said)
	return cause
}

// deathsAfter is how many runs in a row have died without having finished an item, when this one failed with a code.
func (r *run) deathsAfter(before int, code string, class catalog.Class) int {
	processed, failed := r.report.counts()
	switch {
	case !deaths[code] || class == catalog.ClassWarn:
		return 0
	case processed+failed > r.inherited:
		return 1
	}
	return before + 1
}

// classOf returns the class of a failure: the one that a handler gives it, or that of the job.
func (r *run) classOf(rec *statefs.Record, err error) catalog.Class {
	code := rec.Error.Code
	if class := r.patternOf(rec); class != "" {
		return class
	}
	if f, ok := errors.AsType[*AttemptError](err); ok && f.Class != "" {
		return f.Class
	}
	if class := r.def.ExitCodes.Class(code, rec.ExitCode); class != "" {
		return class
	}
	return r.def.ExitCodes.Class(rec.Error.Code, rec.ExitCode)
}

// attemptLine is what the log says of an attempt that failed and is not tried again by itself.
func attemptLine(rec *statefs.Record, cause statefs.Cause, a attempted) string {
	if cause != statefs.CauseNeedsPerson {
		return "  ERROR: " + rec.Error.Message
	}
	if len(rec.Steps) > 0 && a.class == catalog.ClassManual || len(rec.Steps) > 0 && !deaths[a.code] {
		return needsPersonLine(rec, rec.CurrentStep())
	}
	why := "A person must act: mend it"
	if a.class != catalog.ClassManual {
		why = fmt.Sprintf("The work died %d times in a row without finishing anything: a person must look", rec.Deaths)
	}
	return fmt.Sprintf("  ERROR: %s. %s, then 'jobdir retry %s', or 'jobdir cancel' it.", rec.Error.Message, why, rec.ID)
}

// goOn takes an operation whose attempt failed out of the hands of its run, to where the cause leads: it is still live. The record is
// durable before the marker is renamed, and says where to: what the attempt came to is not lost in between, and is not counted twice.
func (d *Daemon) goOn(op *operation, cause statefs.Cause) error {
	op.noteProgress()
	if cause != statefs.CauseNeedsPerson && op.state == statefs.Paused { // it begins again when it is resumed, and its time has come
		if cause == statefs.CauseRescued {
			op.rec.Rescues++
			now := d.owner.Now()
			op.rec.DueAt = &now // which says that the run is over
		}
		op.unsaved = true
		return d.leave(op)
	}
	if err := d.moveByRecord(op, cause); err != nil {
		return err
	}
	return d.leave(op)
}

// moveByRecord makes a transition whose reasons matter: the record is durable before the marker is renamed, and says where to.
func (d *Daemon) moveByRecord(op *operation, cause statefs.Cause) error {
	to, err := statefs.Next(op.state, cause)
	if err != nil {
		return err
	}
	op.ending.stopDue = to == statefs.FailedManual && op.ending.stop == 0
	if err := d.numberStop(op); err != nil {
		return err
	}
	rec := *op.rec // a disk that is full makes this happen again
	if rec.Next = to; cause == statefs.CauseRescued {
		rec.Rescues++
	}
	if err := rec.Apply(op.state, cause, d.owner.Now()); err != nil {
		return err
	}
	if err := d.owner.WriteRecord(&rec); err != nil {
		return d.saveStop(op, err)
	}
	if err := d.owner.Sync(op.id()); err != nil {
		return err
	}
	err = d.owner.Move(op.id(), op.state, to)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return errMoved
	}
	if err != nil {
		return err
	}
	d.counters.transitions.Add(1)
	d.logger.Info("transition", "id", op.id(), "from", op.state, "to", to, "cause", cause)
	op.rec = &rec
	d.entered(op, to)
	op.ending.stopDue = false // it has its number
	return nil
}

// leave writes the record of an operation that its run is done with, and removes what the run needed. Until that is done the run is in
// op.left.
func (d *Daemon) leave(op *operation) error {
	if op.run != nil {
		op.run, op.endedBy, op.left = nil, "", op.run
	}
	d.pauseAnew(op)
	if err := d.durable(op); err != nil {
		return err
	}
	r := op.left
	op.left = nil
	r.commands.taken()
	d.closeLog(op)
	if op.state == statefs.Queued {
		d.looks.want(op.id())
	}
	return r.scratch.remove()
}
