package daemon

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/jobdir/jobdir/statefs"
)

// poison is how many runs in a row may die without having finished an item before a person must look.
const poison = 3

// retryable are the codes of attempts that may go well another time: the work died, hung, or took too long. An exit code is the
// work's own verdict, and is not tried again.
var retryable = map[string]bool{"signal": true, "lost": true, "keeper_died": true, "stalled": true, "timeout": true}

// deaths are the codes that say that the work died without a verdict of its own or of the daemon.
var deaths = map[string]bool{"signal": true, "lost": true, "keeper_died": true}

// attempted is what is known of an operation when one of its attempts has failed.
type attempted struct {
	code           string
	attempts, most int
	deaths         int // runs in a row that died without having finished an item, this one too
}

// after says by what cause an operation goes on when an attempt has failed. It is a pure function.
func (a attempted) after() statefs.Cause {
	switch {
	case deaths[a.code] && a.deaths >= poison:
		return statefs.CauseNeedsPerson
	case !retryable[a.code], a.attempts >= a.most:
		return statefs.CauseFailed
	}
	return statefs.CauseRescued
}

// failedAttempt notes that an attempt failed with the error in the record, says so, and returns the cause by which the operation
// goes on.
func (d *Daemon) failedAttempt(op *operation) statefs.Cause {
	rec, r := op.rec, op.run
	processed, failed := r.report.counts()
	switch {
	case !deaths[rec.Error.Code]:
		rec.Deaths = 0
	case processed+failed > r.inherited:
		rec.Deaths = 1
	default:
		rec.Deaths++
	}
	cause := attempted{code: rec.Error.Code, attempts: rec.Attempts, most: r.def.MaxAttempts, deaths: rec.Deaths}.after()
	if cause == statefs.CauseNeedsPerson {
		rec.Reason = "poison"
	}
	d.say(op, attemptLine(rec, cause, r.def.MaxAttempts))
	return cause
}

// attemptLine is what the log says of an attempt that failed.
func attemptLine(rec *statefs.Record, cause statefs.Cause, most int) string {
	if cause == statefs.CauseNeedsPerson {
		return fmt.Sprintf("  ERROR: %s. The work died %d times in a row without finishing anything: a person must look.", rec.Error.Message, rec.Deaths)
	}
	if cause == statefs.CauseRescued {
		return fmt.Sprintf("  Attempt %d of %d failed: %s. It is tried again.", rec.Attempts, most, rec.Error.Message)
	}
	return "  ERROR: " + rec.Error.Message
}

// goOn takes an operation whose attempt failed out of the hands of its run, to where the cause leads: it is still live. The record is
// durable before the marker is renamed, and says where to: what the attempt came to is not lost in between, and is not counted twice.
func (d *Daemon) goOn(op *operation, cause statefs.Cause) error {
	op.noteProgress()
	if cause == statefs.CauseRescued && op.state == statefs.Paused { // it begins again when it is resumed
		op.rec.Rescues++
		op.unsaved = true
		return d.leave(op)
	}
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
	return d.leave(op)
}

// leave writes the record of an operation that its run is done with, and removes what the run needed. Until that is done the run is in
// op.left.
func (d *Daemon) leave(op *operation) error {
	if op.run != nil {
		op.run, op.endedBy, op.left = nil, "", op.run
	}
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
