package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/live"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// operation is a live operation that the daemon manages. Except for the atomic fields, only the
// reconcile of its ID uses it, and at most one reconcile of an ID runs at a time.
type operation struct {
	ident statefs.ID // may be read anywhere; it never changes
	// activeState is what a reconcile needs. It is nil between reconciles while the operation only
	// waits; see evict.
	*activeState

	// state is the state of the marker when the daemon last moved or accepted it.
	state statefs.State
	// shown is what readers outside the reconcile see in the table, once the operation is tracked.
	shown *live.Snapshot
	// extraNames are the names besides the marker that the last reconcile found. They may still
	// exist, so the next reconcile checks them again.
	extraNames statefs.NameSet
	// evicted tells readers outside the reconcile that activeState is nil.
	evicted atomic.Bool
	// misplaced is set when the reconcile of another operation finds this operation's marker in
	// place of that operation's marker.
	misplaced atomic.Bool
	// publishedReason is the last published reason to wait in the present state.
	publishedReason atomic.Uint64
	// events counts the watch events of this ID.
	events atomic.Uint64
}

// activeState is the in-memory state of an operation that does more than wait.
type activeState struct {
	rec *statefs.Record
	run *work.Run
	// finishedRun is a run that has ended but whose end is not yet known to be durable.
	finishedRun *work.Run
	log         *stream.Writer
	// optionalSteps are the running optional steps by name.
	optionalSteps map[string]*optionalStep
	// waitingSteps are the optional steps that wait for lane slots, limits or keys of their own.
	waitingSteps map[string]bool
	// awaiting are the taken requests whose effect comes when the work has stopped (decide.StopWork), such as
	// a pause, or has ended (decide.EndWork), such as a cancel.
	awaiting map[decide.Effect]*request
	// pendingRequests are the taken requests that are not carried out yet. doneRequests are carried
	// out, but their files are not removed yet.
	pendingRequests, doneRequests []*request
	// unsaved means that the marker was moved and that the record does not yet durably say so.
	unsaved bool
	// unrecordedStart is the start time of a run that is not in the record yet, zero if there is
	// none.
	unrecordedStart time.Time
	missing         missingMarker
	// endCause is the cause by which the operation ends, set once its work has ended.
	endCause  statefs.Cause
	feed      feedNumbers
	deadlines deadlines
	// eligibleAt is when the last operation that this one comes after ended; zero if there is none.
	eligibleAt time.Time
}

// missingMarker records since when the marker of an operation has not been found.
type missingMarker struct {
	since  time.Time
	events uint64
}

// request is a request that the daemon has taken.
type request struct {
	statefs.TakenRequest
	logged     bool          // its log line is written
	cause      statefs.Cause // of the transition that it waits for, if it is awaiting
	carriedOut bool          // it changed something, and was not refused
	dropped    bool          // its file is removed
}

// await makes a request wait until the work has stopped or ended, instead of an earlier request. If that request ends
// the operation, its cause counts.
func (op *operation) await(until decide.Effect, r *request, cause statefs.Cause) {
	if before := op.awaiting[until]; before != nil {
		if before.Action.Spec().Ends {
			cause = before.cause
		}
		op.doneRequests = append(op.doneRequests, before)
	}
	r.cause, r.logged = cause, true
	op.awaiting[until] = r
}

// unsettled returns the taken requests that have not taken effect yet.
func (op *operation) unsettled() []*request {
	return slices.AppendSeq(slices.Clone(op.pendingRequests), maps.Values(op.awaiting))
}

// newOperation returns an operation whose record is known to the subscribers of the table.
func newOperation(rec *statefs.Record) *operation {
	shown := &live.Snapshot{ID: rec.ID}
	return &operation{ident: rec.ID, activeState: newActiveState(rec), shown: shown.Committed(rec)}
}

func newActiveState(rec *statefs.Record) *activeState {
	return &activeState{
		rec: rec, awaiting: make(map[decide.Effect]*request), optionalSteps: make(map[string]*optionalStep),
		waitingSteps: make(map[string]bool),
	}
}

func (op *operation) id() statefs.ID { return op.ident }

// workEnded reports whether no work of the operation is running, also if its end is not recorded
// yet.
func (op *operation) workEnded() bool {
	for _, s := range op.optionalSteps {
		if !s.run.Ended() {
			return false
		}
	}
	return op.run == nil || op.run.Ended()
}

// snapshot returns what a decision reads of an operation.
func (c *core) snapshot(op *operation) decide.Snapshot {
	s := decide.Snapshot{
		State: op.state, Ended: !c.manages(op.id()), HasSteps: len(op.rec.Steps) > 0, Working: op.run != nil,
		Pausing: op.awaiting[decide.StopWork] != nil, Resume: decide.ResumeCause(op.rec, c.owner.Now()),
	}
	if r := op.awaiting[decide.EndWork]; r != nil {
		s.Ending, s.EndCause = r.Action, r.cause
	}
	return s
}

// catchUpWithMarker records a transition that only the marker shows: the daemon died between moving
// the marker and writing the record, or a person moved the marker.
func (dc *decisions) catchUpWithMarker(op *operation, cause statefs.Cause) error {
	if err := op.rec.Apply(op.rec.Status, cause, dc.owner.Now()); err == nil {
		op.unsaved = true
	}
	return nil
}

// copyProgress copies the progress that the work reported into the record.
func (op *operation) copyProgress() {
	if op.run == nil {
		return
	}
	if pid, _ := op.run.PID(); pid > 0 {
		op.rec.PID = pid
	}
	p := op.run.Progress()
	if p.At.IsZero() {
		return
	}
	op.rec.HeartbeatAt = &p.At
	if op.run.Step() != nil {
		op.rec.Progress = progressNow(op.rec, p)
		return
	}
	op.rec.Progress, op.rec.Phase = &p, cmp.Or(p.Phase, statefs.FirstPhase)
}

// recordPhase writes the record at once when the phase changed: a phase is a milestone, unlike a
// number that changes every second. It also records the PID of a command, once the command has run
// for some time, so that short commands do not cost a write.
func (f *finisher) recordPhase(op *operation) error {
	pid, settled := op.run.PID()
	if (!settled || op.rec.PID == pid) && op.run.PhaseRecorded(op.rec) {
		return nil
	}
	if !op.unrecordedStart.IsZero() {
		return f.starts.recordStart(op)
	}
	op.copyProgress()
	return f.commit(op.id(), change{rec: op.rec}, writeRecord)
}

// recordStall records that the work has stalled or moves again.
func (f *finisher) recordStall(op *operation) error {
	if op.rec.StalledAt != nil {
		op.rec.StalledAt = nil
		f.logger.Info("work moves again", "id", op.id())
	} else {
		now := f.owner.Now()
		op.rec.StalledAt = &now
		f.logger.Warn("work stalled: no output and no progress", "id", op.id(), "for", op.run.StallAfter(),
			"action", op.run.Def().OnStall)
	}
	op.copyProgress()
	if err := f.commit(op.id(), change{rec: op.rec}, writeRecord); err != nil {
		return err
	}
	f.publishRecord(op)
	f.publisher.publishStall(op.rec)
	// This is no transition, so touch the marker: programs that watch the operation then read it again.
	if err := f.commit(op.id(), change{to: op.state}, touchMarker); err != nil {
		f.logger.Warn("marker not touched: watchers of jobs/ notice late that work stalled or moves again", "id", op.id(), "error", err)
	}
	return nil
}

// endStalled records that the work has stalled, and ends it.
func (f *finisher) endStalled(op *operation) error {
	if err := f.recordStall(op); err != nil {
		return err
	}
	op.run.End(&work.Error{Code: "stalled", Err: fmt.Errorf("%w for %s", work.ErrStalled, op.run.StallAfter())})
	return nil
}

// evict drops the in-memory state of an operation that only waits. The state is on disk too, and a
// hundred thousand waiting operations would fill the memory. The next reconcile reads the record
// again.
func (op *operation) evict() {
	a := op.activeState
	quiet := a.run == nil && a.finishedRun == nil && len(a.optionalSteps)+len(a.waitingSteps) == 0 &&
		len(a.awaiting)+len(a.pendingRequests)+len(a.doneRequests) == 0 && a.log == nil && !a.unsaved &&
		a.feed == feedNumbers{} && a.missing == missingMarker{} && !a.deadlines.anySet()
	if quiet && a.rec.Status == op.state && a.rec.Next == "" {
		op.activeState = nil
		op.evicted.Store(true)
	}
}

// activate reads the record of an evicted operation. If the record is damaged, removed or of a
// newer version, activate untracks the operation: the reconcile then finds a marker that the daemon
// does not manage, and judges it as any other.
func (rc *reconciler) activate(id statefs.ID) error {
	op := rc.operation(id)
	if op == nil || op.activeState != nil {
		return nil
	}
	rec, err := rc.owner.ReadRecord(id)
	if err == nil {
		op.activeState = newActiveState(rec)
		op.evicted.Store(false)
		return nil
	}
	if _, corrupt := errors.AsType[*statefs.CorruptError](err); !corrupt && !errors.Is(err, statefs.ErrNewerVersion) &&
		!errors.Is(err, fs.ErrNotExist) {
		return err
	}
	rc.logger.Error("the record of a waiting operation was damaged or removed by another program", "id", id, "error", err)
	rc.markers.damaged.set(id, damagedRecord{op.shown, err})
	op.activeState = newActiveState(statefs.UnknownRecord(id, rc.owner.Now()))
	rc.untrack(op)
	return nil
}
