package daemon

import (
	"errors"
	"io/fs"

	"github.com/jobdir/jobdir/statefs"
)

// park lets go of what is in memory of an operation that only waits: it is on the disk too, and a hundred thousand of them would fill the
// memory. The next look reads the record again.
func (op *operation) park() {
	a := op.attention
	quiet := a.run == nil && a.left == nil && len(a.sides) == 0 && len(a.sidesWait) == 0 && a.log == nil && !a.unsaved && a.pausing == nil && a.cancelling == nil &&
		len(a.taken) == 0 && len(a.effected) == 0 && a.ending == ending{} && a.absence == absence{} && !a.times.limited()
	if quiet && a.rec.Status == op.state && a.rec.Next == "" {
		op.attention = nil
		op.parked.Store(true)
	}
}

// unpark reads the record of an operation that was parked. One whose record cannot be used any more is let go of: then the look finds a
// marker that nobody has in hand, and judges it like every other one.
func (d *Daemon) unpark(id statefs.ID) error {
	op := d.operation(id)
	if op == nil || op.attention != nil {
		return nil
	}
	rec, err := d.owner.ReadRecord(id)
	if err == nil {
		op.attention = attend(rec)
		op.parked.Store(false)
		return nil
	}
	if _, corrupt := errors.AsType[*statefs.CorruptError](err); !corrupt && !errors.Is(err, statefs.ErrNewerVersion) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.logger.Error("the record of an operation that waits was changed or removed by somebody else", "id", id, "error", err)
	op.attention = attend(statefs.Unknown(id, d.owner.Now()))
	d.forget(op)
	d.admission.settle(op, false)
	return nil
}
