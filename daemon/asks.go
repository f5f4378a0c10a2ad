package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/statefs"
)

// The lines that the daemon writes into the log when it takes a request.
const (
	linePause        = "  Pause requested, pausing..."
	lineResume       = "  Resume requested, resuming..."
	lineCancel       = "  Cancel requested, stopping..."
	lineCancelPaused = "  Cancel requested while paused, stopping..."
)

// resumeLine is the line for a resume of an operation that has no process to go on with.
func resumeLine(cause statefs.Cause) string {
	if cause == statefs.CauseRelease {
		return lineResume
	}
	return "  Resume requested, waiting for its time again..."
}

// lineNothing is the line for a request that changes nothing.
func lineNothing(ask statefs.Ask, state statefs.State) string {
	return fmt.Sprintf("  %s requested while %s: nothing to do.", strings.ToUpper(string(ask[:1]))+string(ask[1:]), state)
}

// carryOut takes the requests that are there and acts on them: cancel before all others, the others in the order in which they
// were made, so that the last one wins. One that could not be carried out stays in hand for the next look.
func (d *Daemon) carryOut(op *operation, asks []statefs.Ask) error {
	if err := d.take(op, asks); err != nil {
		return err
	}
	for len(op.taken) > 0 {
		r := op.taken[0]
		op.taken = op.taken[1:]
		if err := d.carryOutOne(op, r); err != nil {
			return err
		}
	}
	return nil
}

// take takes requests in hand, in the order in which they are to be carried out. The error is one that mends itself.
func (d *Daemon) take(op *operation, asks []statefs.Ask) error {
	for _, ask := range asks {
		if len(op.rec.Steps) > 0 && statefs.HasParticulars(ask) {
			if wait := d.owner.Unsettled(op.id(), ask, quiet); wait > 0 {
				d.looks.retry(op.id(), wait)
				continue
			}
		}
		t, ok, err := d.owner.Take(op.id(), ask)
		if scarce(err) {
			return err
		}
		if err != nil {
			d.logger.Warn("request ignored", "id", op.id(), "request", ask, "error", err)
			continue
		}
		if ok {
			d.counters.requests.Add(1)
			op.taken = append(op.taken, &request{Taken: t})
		}
	}
	slices.SortStableFunc(op.taken, func(a, b *request) int {
		if (a.Ask == statefs.Cancel) != (b.Ask == statefs.Cancel) {
			if a.Ask == statefs.Cancel {
				return -1
			}
			return 1
		}
		return a.At.Compare(b.At)
	})
	return nil
}

func (d *Daemon) carryOutOne(op *operation, r *request) error {
	switch {
	case op.cancelling != nil && r.Ask == statefs.Cancel:
		op.cancelling = &r.Taken // its file has taken the place of the first one's
		return nil
	case op.cancelling != nil || !d.manages(op.id()):
		return d.owner.Drop(r.Taken) // it is being cancelled, which beats all, or has just ended and its log is sealed
	case r.Ask == statefs.Pause:
		return d.pause(op, r)
	case r.Ask == statefs.Resume:
		return d.resume(op, r)
	case r.Ask == statefs.Cancel:
		return d.cancel(op, r)
	case r.Ask == statefs.Prioritize:
		d.prioritize(op, r)
		return nil
	case len(op.rec.Steps) > 0:
		return d.act(op, r)
	case r.Ask == statefs.Retry:
		return d.retry(op, r)
	}
	d.meansNothing(op, r)
	return nil
}

// meansNothing consumes a request that the present state has no use for, and says so where whoever asked will look.
func (d *Daemon) meansNothing(op *operation, r *request) {
	d.say(op, lineNothing(r.Ask, op.state))
	d.logger.Info("request means nothing now", "id", op.id(), "request", r.Ask, "state", op.state)
	op.effected = append(op.effected, r.Taken)
}

func (d *Daemon) pause(op *operation, r *request) error {
	if op.pausing != nil {
		op.effected = append(op.effected, r.Taken)
		return nil
	}
	if !op.can(statefs.CausePause) {
		d.meansNothing(op, r)
		return nil
	}
	if op.run == nil {
		return d.moveFor(op, r, linePause, statefs.CausePause)
	}
	// Stopped first, renamed second: paused means that nothing moves any more.
	stopped := op.run.gate.pause()
	d.say(op, linePause)
	op.pausing = &r.Taken
	op.alignSides()
	if stopped && op.standsStill() {
		return d.settlePause(op)
	}
	return nil
}

// settlePause makes a pause whose work has stopped the state of the operation.
func (d *Daemon) settlePause(op *operation) error {
	if op.state == statefs.Running {
		if err := d.move(op, statefs.CausePause); err != nil {
			return err
		}
	}
	op.effected = append(op.effected, *op.pausing)
	op.pausing = nil
	return nil
}

// pauseAnew has a pause carried out in the state that an operation has now: its work ended before it stopped.
func (d *Daemon) pauseAnew(op *operation) {
	if op.pausing == nil {
		return
	}
	op.taken = slices.Insert(op.taken, 0, &request{Taken: *op.pausing, said: true})
	op.pausing = nil
	d.looks.want(op.id())
}

func (d *Daemon) resume(op *operation, r *request) error {
	if op.pausing != nil {
		// The work has not stopped yet, so it just goes on.
		d.say(op, lineResume)
		op.run.gate.resume()
		op.effected = append(op.effected, *op.pausing, r.Taken)
		op.pausing = nil
		return nil
	}
	switch {
	case op.state != statefs.Paused:
		d.meansNothing(op, r)
		return nil
	case op.run == nil:
		cause := d.heldUntilDue(op)
		return d.moveFor(op, r, resumeLine(cause), cause)
	}
	return d.moveFor(op, r, lineResume, statefs.CauseResume)
}

// moveFor makes the transition that a request asks for. When the marker cannot be moved the request stays in hand.
func (d *Daemon) moveFor(op *operation, r *request, line string, cause statefs.Cause) error {
	if !r.said {
		d.say(op, line)
		r.said = true
	}
	if err := d.move(op, cause); err != nil {
		op.taken = slices.Insert(op.taken, 0, r)
		return err
	}
	op.effected = append(op.effected, r.Taken)
	return nil
}

func (d *Daemon) cancel(op *operation, r *request) error {
	if !op.can(statefs.CauseCancel) {
		d.meansNothing(op, r)
		return nil
	}
	d.sayCancel(op)
	return d.endBy(op, r.Taken, statefs.CauseCancel)
}

func (d *Daemon) sayCancel(op *operation) {
	if op.state == statefs.Paused {
		d.say(op, lineCancelPaused)
		return
	}
	d.say(op, lineCancel)
}

// endBy cancels an operation: at once when it has no work in hand, else when its work has ended.
func (d *Daemon) endBy(op *operation, t statefs.Taken, cause statefs.Cause) error {
	op.cancelling, op.cancelCause = &t, cause
	if op.run == nil {
		return d.finishAs(op, cause)
	}
	op.run.end(ErrCancelled)
	d.endSides(op, func(r *run) { r.end(ErrCancelled) })
	return nil
}

// conclude lets go on what a resume has moved, makes durable what was done in this look or could not be made so in an earlier one,
// and then forgets the requests that asked for it.
func (d *Daemon) conclude(op *operation) error {
	if op.state == statefs.Running && op.run != nil && op.pausing == nil && op.run.gate.held() {
		// Renamed first, and durable, before the work moves on.
		if err := d.owner.Sync(op.id()); err != nil {
			return err
		}
		op.run.gate.resume()
	}
	switch {
	case op.left != nil:
		return d.leave(op)
	case op.unsaved:
		return d.durable(op)
	}
	return d.dropEffected(op)
}

// dropEffected removes the requests that have had their effect.
func (d *Daemon) dropEffected(op *operation) error {
	for len(op.effected) > 0 {
		if err := d.drop(op, op.effected[0]); err != nil {
			return err
		}
		op.effected = op.effected[1:]
	}
	return nil
}

// drop removes a request that has had its effect, unless the same has been asked again: there is one name in taken/ for both, and the
// one that has not had its effect needs it.
func (d *Daemon) drop(op *operation, t statefs.Taken) error {
	if op.awaits(t.Ask) {
		return nil
	}
	return d.owner.Drop(t)
}

// pausedByHand is a pause whose marker has been moved already.
func (d *Daemon) pausedByHand(op *operation) error {
	if op.run != nil {
		op.run.gate.pause()
	}
	d.say(op, linePause)
	return d.accept(op, statefs.CausePause)
}

// resumedByHand is a resume whose marker has been moved already. Without work in hand the operation has to start first.
func (d *Daemon) resumedByHand(op *operation) error {
	if cause := d.heldUntilDue(op); op.run == nil && cause != statefs.CauseRelease {
		return d.waitAgain(op, cause)
	}
	d.say(op, lineResume)
	if err := d.accept(op, statefs.CauseResume); err != nil || op.run != nil {
		return err
	}
	return d.requeue(op)
}

// waitAgain puts a marker that was moved from paused to running back to where its operation waits for its time.
func (d *Daemon) waitAgain(op *operation, cause statefs.Cause) error {
	to, err := statefs.Next(statefs.Paused, cause)
	if err != nil {
		return err
	}
	err = d.owner.Move(op.id(), statefs.Running, to)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return errMoved
	}
	if err != nil {
		return err
	}
	d.say(op, resumeLine(cause))
	return d.moved(op, cause)
}

// say appends a line of the daemon's to the log. A log that cannot be written is reported: the request counts all the same.
func (d *Daemon) say(op *operation, line string) {
	if op.state == statefs.Trailing {
		d.logger.Info("operation", "id", op.id(), "says", line) // its log is sealed
		return
	}
	log, err := d.openLog(op)
	if err == nil {
		err = log.Line(line)
	}
	if err != nil {
		d.logger.Error("line not written to the log", "id", op.id(), "line", line, "error", err)
	}
}
