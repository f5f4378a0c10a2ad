package daemon

import (
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// saidAfter is how long the first run of a handler goes on before its start is written into the record. Most that are shorter never pay for it:
// the record of their end says it.
const saidAfter = 100 * time.Millisecond

// behind are the operations whose records do not say yet that their first run has begun, in the order in which they are due. What has ended
// meanwhile stands there until then. It is safe for concurrent use.
type behind struct {
	want func(statefs.ID) // called without the lock

	mu     sync.Mutex
	queue  []begunAt
	timer  *time.Timer
	closed bool
}

type begunAt struct {
	id statefs.ID
	at time.Time
}

// add has an operation looked at after a while.
func (b *behind) add(id statefs.ID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.queue = append(b.queue, begunAt{id, now})
	if len(b.queue) > 1 {
		return
	}
	if b.timer == nil {
		b.timer = time.AfterFunc(saidAfter, b.ring)
	} else {
		b.timer.Reset(saidAfter)
	}
}

// ring has those looked at that are due. All wait for the same time, so that those come first which were added first.
func (b *behind) ring() {
	now := time.Now()
	b.mu.Lock()
	due := 0
	for due < len(b.queue) && now.Sub(b.queue[due].at) >= saidAfter {
		due++
	}
	ids := b.queue[:due:due]
	if b.queue = b.queue[due:]; b.closed || len(b.queue) == 0 {
		b.queue = nil
	} else {
		b.timer.Reset(saidAfter - now.Sub(b.queue[0].at))
	}
	b.mu.Unlock()
	for _, e := range ids {
		b.want(e.id)
	}
}

func (b *behind) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.queue = true, nil
	if b.timer != nil {
		b.timer.Stop()
	}
}

// beginsUnsaid reports whether an operation begins without a word in its record: the marker alone then says that the first run of a handler has
// begun, which is all that a restart needs, since the work of a handler ends with its daemon. A command may go on without one, and is found again
// by the number of its run.
func beginsUnsaid(rec *statefs.Record, def *catalog.Definition) bool {
	return def.Work() == catalog.WorkHandler && len(rec.Steps) == 0 && statefs.BegunUnsaid(rec, statefs.Running)
}

// sayBegun writes into the record that the run has begun, durably: once the marker says something else, nothing but the record does.
func (d *Daemon) sayBegun(op *operation) error {
	if op.unsaid.IsZero() {
		return nil
	}
	op.noteProgress()
	if err := d.owner.WriteRecord(op.rec); err != nil {
		return err
	}
	if err := d.owner.Sync(op.id()); err != nil {
		return err
	}
	op.unsaid = time.Time{}
	return nil
}

// sayBegunInTime does so before anything else than the end of the run happens to the operation, and when it has gone on for a while. A disk that is
// full keeps nobody from controlling it.
func (d *Daemon) sayBegunInTime(op *operation, sight statefs.Sight) error {
	quiet := len(sight.Asks)+len(op.taken) == 0 && op.pausing == nil && op.cancelling == nil && !op.unsaved && len(sight.States) == 1 && sight.States[0] == op.state
	if quiet && time.Since(op.unsaid) < saidAfter {
		return nil
	}
	err := d.sayBegun(op)
	if statefs.Scarce(err) {
		op.unsaid = time.Now()
		d.behind.add(op.id(), op.unsaid)
		return nil
	}
	return err
}

// takeOverBegun notes what the marker alone says of an operation: a handler's first run had begun with an earlier daemon. It is in the record,
// durably, before the marker moves on.
func (d *Daemon) takeOverBegun(rec *statefs.Record, marker statefs.State) error {
	if !statefs.BegunUnsaid(rec, marker) {
		return nil
	}
	def, err := d.keptDefinition(rec)
	if err != nil || !beginsUnsaid(rec, def) {
		return nil //nolint:nilerr // one whose job cannot be read is said to be so when it is to begin
	}
	at, err := d.owner.MovedAt(rec.ID, marker)
	if err != nil {
		return errMoved
	}
	if err := rec.Begun(at); err != nil {
		return err
	}
	if err := d.owner.WriteRecord(rec); statefs.Scarce(err) {
		return nil // a disk that is full keeps nobody from starting
	} else if err != nil {
		return err
	}
	return d.owner.Sync(rec.ID)
}
