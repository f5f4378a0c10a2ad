package daemon

import (
	"slices"

	"github.com/jobdir/jobdir/statefs"
)

// The lines that the daemon writes into the log when it takes a request.
const (
	linePause        = "  Pause requested, pausing..."
	lineResume       = "  Resume requested, resuming..."
	lineCancel       = "  Cancel requested, stopping..."
	lineCancelPaused = "  Cancel requested while paused, stopping..."
)

// carryOut takes the requests that are there and acts on them: cancel before all others, the others in the order in which they
// were made, so that the last one wins.
func (d *Daemon) carryOut(op *operation, asks []statefs.Ask) error {
	if len(asks) == 0 {
		return nil
	}
	var taken []statefs.Taken
	for _, ask := range asks {
		t, ok, err := d.owner.Take(op.id(), ask)
		if err != nil {
			d.logger.Warn("request ignored", "id", op.id(), "request", ask, "error", err)
			continue
		}
		if ok {
			taken = append(taken, t)
		}
	}
	slices.SortStableFunc(taken, func(a, b statefs.Taken) int {
		if (a.Ask == statefs.Cancel) != (b.Ask == statefs.Cancel) {
			if a.Ask == statefs.Cancel {
				return -1
			}
			return 1
		}
		return a.At.At.Compare(b.At.At)
	})
	for _, t := range taken {
		d.counters.requests.Add(1)
		if err := d.carryOutOne(op, t); err != nil {
			return err
		}
	}
	return nil
}

func (d *Daemon) carryOutOne(op *operation, t statefs.Taken) error {
	switch {
	case op.cancelling != nil || !d.manages(op.id()):
		return d.owner.Drop(t) // it is being cancelled: nothing else counts
	case t.Ask == statefs.Pause:
		return d.pause(op, t)
	case t.Ask == statefs.Resume:
		return d.resume(op, t)
	case t.Ask == statefs.Cancel:
		return d.cancel(op, t)
	}
	return d.meansNothing(op, t)
}

// meansNothing consumes a request that the present state has no use for.
func (d *Daemon) meansNothing(op *operation, t statefs.Taken) error {
	d.logger.Info("request means nothing now", "id", op.id(), "request", t.Ask, "state", op.state)
	return d.owner.Drop(t)
}

func (d *Daemon) pause(op *operation, t statefs.Taken) error {
	if op.pausing != nil {
		return d.owner.Drop(t)
	}
	if _, err := statefs.Next(op.state, statefs.CausePause); err != nil {
		return d.meansNothing(op, t)
	}
	if op.run != nil {
		// Stopped first, renamed second: paused means that nothing moves any more.
		stopped := op.run.gate.pause()
		d.say(op, linePause)
		op.pausing = &t
		if stopped {
			return d.settlePause(op)
		}
		return nil
	}
	d.say(op, linePause)
	if err := d.move(op, statefs.CausePause); err != nil {
		return err
	}
	return d.effective(op, t)
}

// settlePause makes a pause whose work has stopped the state of the operation.
func (d *Daemon) settlePause(op *operation) error {
	t := *op.pausing
	if op.state == statefs.Running {
		if err := d.move(op, statefs.CausePause); err != nil {
			return err
		}
	}
	op.pausing = nil
	return d.effective(op, t)
}

func (d *Daemon) resume(op *operation, t statefs.Taken) error {
	if op.pausing != nil {
		// The work has not stopped yet, so it just goes on.
		d.say(op, lineResume)
		op.run.gate.resume()
		pausing := *op.pausing
		op.pausing = nil
		if err := d.owner.Drop(pausing); err != nil {
			return err
		}
		return d.owner.Drop(t)
	}
	if op.state != statefs.Paused {
		return d.meansNothing(op, t)
	}
	d.say(op, lineResume)
	if op.run == nil {
		if err := d.move(op, statefs.CauseRelease); err != nil {
			return err
		}
		return d.effective(op, t)
	}
	if err := d.move(op, statefs.CauseResume); err != nil {
		return err
	}
	// Renamed first, and durable, before the work moves on.
	if err := d.owner.Sync(op.id()); err != nil {
		return err
	}
	op.run.gate.resume()
	return d.effective(op, t)
}

func (d *Daemon) cancel(op *operation, t statefs.Taken) error {
	if _, err := statefs.Next(op.state, statefs.CauseCancel); err != nil {
		return d.meansNothing(op, t)
	}
	d.sayCancel(op)
	return d.endBy(op, t, statefs.CauseCancel)
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
	return nil
}

// effective makes the effect of a request durable and then forgets the request.
func (d *Daemon) effective(op *operation, t statefs.Taken) error {
	if err := d.durable(op); err != nil {
		return err
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
	d.say(op, lineResume)
	if op.run != nil {
		if err := d.accept(op, statefs.CauseResume); err != nil {
			return err
		}
		op.run.gate.resume()
		return nil
	}
	if err := d.accept(op, statefs.CauseResume); err != nil {
		return err
	}
	return d.requeue(op)
}

// say appends a line of the daemon's to the log. A log that cannot be written is reported: the request counts all the same.
func (d *Daemon) say(op *operation, line string) {
	log, err := d.openLog(op)
	if err == nil {
		err = log.Line(line)
	}
	if err != nil {
		d.logger.Error("line not written to the log", "id", op.id(), "line", line, "error", err)
	}
}
