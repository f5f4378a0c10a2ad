package daemon

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/history"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/steps"
	"github.com/jobdir/jobdir/stream"
	"github.com/jobdir/jobdir/tally"
)

// operation is a live operation in the daemon's hands. Its fields belong to the one look that runs for its ID at a time, but for
// the atomic ones.
type operation struct {
	ident statefs.ID // for everybody; it never changes
	// attention is what a look needs; nil between the looks while the operation only waits, see park.
	*attention

	// state is what the marker said when the daemon last moved or accepted it.
	state statefs.State
	// tally counts the operation in the state counted, in its lane; nil while it is not in hand.
	tally   *tally.Counter
	counted statefs.State
	// queuedAt is since when it is counted as queued.
	queuedAt time.Time
	// stands is where it stands in the queue, and standsWith the priority that it waits there with.
	stands     standing
	standsWith int32
	// open are the names that the last look found beside its marker: they may be there still, and each look asks for them again.
	open statefs.Names
	// parked says that attention is nil, to those who are outside the look.
	parked atomic.Bool
	// displaced is the word of looks at other operations that its marker was moved onto one of theirs.
	displaced atomic.Bool
	// shown is a copy of state for readers outside the look.
	shown atomic.Value // statefs.State
	// toldWhy is the reason to wait that was published last in its present state.
	toldWhy atomic.Uint64
	// row is what lists show of it, and living is where they look for it; nil while it is not in hand.
	row    atomic.Value // history.Packed
	living *history.Living
	// marker tells which file the marker is, under any name, and is never nil. Looks at other operations read it.
	marker atomic.Pointer[statefs.Identity]
	// events counts what the watch said of this ID.
	events atomic.Uint64
}

// attention is what the daemon has in memory of an operation with which it does something.
type attention struct {
	rec *statefs.Record
	run *run
	// left is a run that the operation is done with, while that is not known to be durable yet.
	left *run
	log  *stream.Writer
	// sides are the optional steps at work, by name.
	sides map[string]*side
	// sidesWait are the optional steps that wait for places of their own.
	sidesWait map[string]bool
	// pausing is the pause that waits for the next checkpoint, cancelling the cancel that waits for the work to end.
	pausing, cancelling *statefs.Taken
	// taken are the requests in hand that are not carried out yet, effected those that are and whose file is still to go.
	taken    []*request
	effected []statefs.Taken
	// unsaved says that the marker has been moved and that this is not known to be durable and in the record yet.
	unsaved bool
	// unsaid is when a run began of which the record says nothing yet, zero when it does.
	unsaid time.Time
	// cancelCause is what cancelling is recorded as.
	cancelCause statefs.Cause
	absence     absence
	// endedBy is the cause by which the operation ends, once its work has.
	endedBy statefs.Cause
	ending  ending
	// told is the last transition that was published.
	told statefs.Transited
	// toldSteps are the steps as they stood when their changes were published last.
	toldSteps []steps.Step
	times     times
	// eligible is when the last operation that it comes after has ended; zero when it comes after none.
	eligible time.Time
}

// absence is the time in which the marker of an operation is not found.
type absence struct {
	since  time.Time
	events uint64
}

// request is a request in the daemon's hands.
type request struct {
	statefs.Taken
	said bool // its line is in the log
}

func newOperation(rec *statefs.Record) *operation {
	op := &operation{ident: rec.ID, attention: attend(rec)}
	op.marker.Store(new(statefs.Identity)) // of no file
	return op
}

// attend begins with an operation of which everything was told.
func attend(rec *statefs.Record) *attention {
	a := &attention{rec: rec}
	if n := len(rec.Transitions); n > 0 {
		a.told = rec.Transitions[n-1] // by whoever made it
	}
	a.toldSteps = steps.Clone(rec.Steps)
	return a
}

func (op *operation) id() statefs.ID { return op.ident }

func (op *operation) set(state statefs.State) {
	if op.state != state {
		op.toldWhy.Store(untold)
	}
	op.state = state
	op.shown.Store(state)
	op.recount(state)
	op.show()
}

// awaits reports whether a request is in hand that has not had its effect yet.
func (op *operation) awaits(ask statefs.Ask) bool {
	if ask == statefs.Pause && op.pausing != nil {
		return true
	}
	return slices.ContainsFunc(op.taken, func(r *request) bool { return r.Ask == ask })
}

// can reports whether the operation may change by cause now.
func (op *operation) can(cause statefs.Cause) bool {
	_, err := statefs.Next(op.state, cause)
	return err == nil
}

// apply notes in the record that the operation goes from its present state by cause, and returns the state it gets.
func (op *operation) apply(cause statefs.Cause, at time.Time) (statefs.State, error) {
	if err := op.rec.Apply(op.state, cause, at); err != nil {
		return "", err
	}
	return op.rec.Status, nil
}

// catchUp notes in the record what only the marker says: the daemon died between the two, or somebody moved the marker meanwhile.
func (op *operation) catchUp(now time.Time) {
	cause, meant := statefs.HandMove(op.rec.Status, op.state)
	if !meant {
		return // the next write says it
	}
	if err := op.rec.Apply(op.rec.Status, cause, now); err == nil {
		op.unsaved = true
	}
}

// noteProgress copies what the work said of itself into the record.
func (op *operation) noteProgress() {
	if op.run == nil {
		return
	}
	if pid := op.run.pid.Load(); pid > 0 {
		op.rec.PID = int(pid)
	}
	p := op.run.report.current()
	if p.At.IsZero() {
		return
	}
	op.rec.HeartbeatAt = &p.At
	if op.run.step.def != nil {
		op.rec.Progress = progressNow(op.rec, op.run.step.progress(p))
		return
	}
	op.rec.Progress, op.rec.Phase = &p, p.Phase
}

// notePhase writes a phase down at once: it says what has been reached, unlike a number that is another one in a second. The PID of a
// command is written down with it, and when it has run for a while: a short one does not pay for that.
func (d *Daemon) notePhase(op *operation) error {
	if op.run == nil {
		return nil
	}
	pidDue := op.run.settled.Load() && op.rec.PID != int(op.run.pid.Load())
	if !pidDue && op.run.phaseNoted(op.rec) {
		return nil
	}
	if !op.unsaid.IsZero() {
		return d.sayBegun(op)
	}
	op.noteProgress()
	return d.owner.WriteRecord(op.rec)
}

// phaseNoted reports whether the record has the phase that the work says.
func (r *run) phaseNoted(rec *statefs.Record) bool {
	phase := r.report.current().Phase
	if r.step.def == nil {
		return phase == rec.Phase
	}
	return phase == "" || rec.Progress != nil && phase == r.step.own(*rec.Progress).Phase
}
