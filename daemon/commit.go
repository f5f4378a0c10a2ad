package daemon

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

// This file has every write to the marker, the record and the requests of an operation. The order of the
// writes of a transition is a column of its table, statefs.Order.

// write is one write of a commit.
type write string

const (
	writeRecord  write = "record"
	writeEnd     write = "end" // the terminal record, durable at once
	moveMarker   write = "marker"
	removeMarker write = "no marker"
	syncFiles    write = "sync" // makes the writes before it durable

	amendEnd      write = "amended end"   // the record of an operation that has ended, durable at once
	restoreMarker write = "marker again"  // creates the marker of state to, if it is missing
	renameBack    write = "marker back"   // renames file to the marker of state to
	removeExtra   write = "extra marker"  // removes a marker that is not the state of the operation
	touchMarker   write = "marker's time" // so that programs that watch the operation read it again
)

// change is what a commit writes: the record, and the marker's move between two states.
type change struct {
	rec      *statefs.Record
	from, to statefs.State
	file     string // what a person renamed a marker to
}

// committer writes the files of operations. All its methods are safe for concurrent use, one call at a time
// for each operation.
type committer struct{ owner *statefs.Owner }

// commit makes the writes of a change in the given order and stops at the first error. It returns errMoved
// if a person moved or removed the marker.
func (c committer) commit(id statefs.ID, what change, writes ...write) error {
	for _, w := range writes {
		var err error
		switch w {
		case writeRecord:
			err = c.owner.WriteRecord(what.rec)
		case writeEnd:
			err = c.owner.WriteEnd(what.rec)
		case moveMarker:
			err = c.owner.Move(id, what.from, what.to)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
				err = errMoved
			}
		case removeMarker:
			err = c.owner.RemoveMarker(id, what.from)
		case syncFiles:
			err = c.owner.Sync(id)
		case amendEnd:
			err = c.owner.AmendRecord(what.rec)
		case restoreMarker:
			err = c.owner.RestoreMarker(id, what.to, what.rec.CreatedAt)
		case renameBack:
			err = c.owner.RestoreName(what.file, id, what.to)
		case removeExtra:
			err = c.owner.RemoveName(statefs.MarkerName(id, what.from))
		case touchMarker:
			err = c.owner.Touch(id, what.to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// commitRecord durably writes a record that changed without a transition.
func (c committer) commitRecord(rec *statefs.Record) error {
	return c.commit(rec.ID, change{rec: rec}, writeRecord, syncFiles)
}

// transition moves an operation to the state that follows by cause, in the order that the table gives.
func (d *Daemon) transition(op *operation, cause statefs.Cause) error {
	row, err := statefs.TransitionFrom(op.state, cause)
	if err != nil {
		return err
	}
	return d.carryOut(op, row)
}

// carryOut makes a transition. In statefs.MarkerFirst it renames the marker, and the reconcile writes the
// record at its end. In statefs.RecordFirst its reasons must not be lost: the record, which names the next
// state, is durable before the marker is renamed.
func (d *Daemon) carryOut(op *operation, row statefs.Transition) error {
	move := change{from: row.From, to: row.To}
	if row.Order == statefs.MarkerFirst {
		if err := d.commit(op.id(), move, moveMarker); err != nil {
			return err
		}
		return d.noteTransition(op, row.Cause)
	}
	op.feed.stopUnnumbered = row.To == statefs.FailedManual && op.feed.unpublishedStop == 0
	if err := d.numberStop(op); err != nil {
		return err
	}
	rec := *op.rec // a copy, because this is repeated after a full disk
	if rec.Next = row.To; row.Cause == statefs.CauseRescued {
		rec.Rescues++
	}
	if err := rec.Apply(row.From, row.Cause, d.owner.Now()); err != nil {
		return err
	}
	if err := d.commit(op.id(), change{rec: &rec}, writeRecord); err != nil {
		return d.publishStop(op, err)
	}
	if err := d.commit(op.id(), move, syncFiles, moveMarker); err != nil {
		return err
	}
	d.countTransition(op.id(), row)
	op.rec = &rec
	d.enterState(op, row.To)
	op.feed.stopUnnumbered = false // numberStop has numbered it
	return nil
}

// noteTransition updates the operation after its marker was renamed.
func (d *Daemon) noteTransition(op *operation, cause statefs.Cause) error {
	from := op.state
	to, err := op.apply(cause, d.owner.Now())
	if err != nil {
		return err
	}
	d.countTransition(op.id(), statefs.Transition{From: from, Cause: cause, To: to})
	d.enterState(op, to)
	return nil
}

func (d *Daemon) countTransition(id statefs.ID, row statefs.Transition, more ...any) {
	d.counters.transitions.Add(1)
	d.logger.Info("transition", append([]any{"id", id, "from", row.From, "to", row.To, "cause", row.Cause}, more...)...)
}

// enterState notes the new state of a marker. Requests that have already taken effect are dropped:
// if one of them were carried out again after a crash, it would undo this move.
func (d *Daemon) enterState(op *operation, state statefs.State) {
	if op.state.NeedsPerson() != state.NeedsPerson() {
		defer d.queueChanged() // for the operations that depend on it
	}
	d.setState(op, state)
	op.unsaved = true
	op.feed.stopUnnumbered = state == statefs.FailedManual
	if err := d.dropDoneRequests(op); err != nil {
		d.logger.Warn("request that took effect not removed, retrying", "id", op.id(), "error", err)
	}
}

// persist syncs the rename, then writes the record, then drops the requests that led to it.
func (d *Daemon) persist(op *operation) error {
	if err := d.commit(op.id(), change{}, syncFiles); err != nil {
		return err
	}
	op.rec.Next = ""
	op.copyProgress()
	if err := d.numberStop(op); err != nil {
		return err
	}
	if err := d.publishStop(op, d.commit(op.id(), change{rec: op.rec}, writeRecord)); err != nil {
		return err
	}
	op.unsaved, op.unrecordedStart = false, time.Time{}
	d.publishRecord(op)
	return d.dropDoneRequests(op)
}

// dropDoneRequests removes the requests that have taken effect.
func (d *Daemon) dropDoneRequests(op *operation) error {
	for len(op.doneRequests) > 0 {
		if err := d.dropRequest(op, op.doneRequests[0]); err != nil {
			return err
		}
		op.doneRequests = op.doneRequests[1:]
	}
	return nil
}

// dropRequest removes a request that has taken effect, unless the same action is pending again:
// both share one file in taken/, and the pending one still needs it.
func (d *Daemon) dropRequest(op *operation, t statefs.TakenRequest) error {
	if op.hasPending(t.Action) {
		return nil
	}
	return d.drop(t)
}

// drop removes requests for good.
func (c committer) drop(requests ...statefs.TakenRequest) error {
	var errs []error
	for _, t := range requests {
		errs = append(errs, c.owner.Requests.Drop(t))
	}
	return errors.Join(errs...)
}

// runBatchSync syncs the records that batch submits have not synced yet, until ctx ends.
func (d *Daemon) runBatchSync(ctx context.Context) {
	select {
	case <-d.ready: // recovery must first restore what a power cut destroyed of them
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(d.config.SweepInterval)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			err := d.owner.Batches.Settle(now.Add(-d.config.SweepInterval))
			if _, failed := errors.AsType[*files.SyncError](err); failed {
				d.fail(err)
			} else if err != nil {
				d.logger.Warn("records of batch submits not synced, retrying at the next sweep", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}
