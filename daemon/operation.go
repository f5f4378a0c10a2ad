package daemon

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/live"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
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
	// managed means that the operation is in the table. An evicted operation always is.
	managed bool
	run     *work.Run
	// finishedRun is a run that has ended but whose end is not yet known to be durable.
	finishedRun *work.Run
	log         *stream.Writer
	// isNew means that this process submitted the operation and has not evicted it since; then there is no log unless
	// hasLog is set, because the daemon or the work has opened one.
	isNew  bool
	hasLog atomic.Bool
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

// optionalStep is a running optional step.
type optionalStep struct {
	run *work.Run
	log *stream.Writer
	stepPlaces
}

// stepPlaces tells which places an optional step uses: the shared ones of its operation, its own,
// or both.
type stepPlaces struct{ shared, own bool }

// working reports whether any work of the operation is running.
func (op *operation) working() bool { return op.run != nil || len(op.optionalSteps) > 0 }

// hasSharedPlaces reports whether an optional step of op uses the places of op.
func (op *operation) hasSharedPlaces() bool {
	if op.activeState == nil {
		return false
	}
	for _, s := range op.optionalSteps {
		if s.shared {
			return true
		}
	}
	return false
}

// missingMarker records since when the marker of an operation has not been found.
type missingMarker struct {
	since  time.Time
	events uint64
}

// feedNumbers holds an operation's numbers in the completion feed. Only the reconcile of the
// operation uses it.
type feedNumbers struct {
	// end is the number of the operation's end, 0 until it has one. When the end is repeated after
	// a full disk, it keeps its number.
	end uint64
	// stopUnnumbered is set while the operation is failed_manual and that stop has no number yet.
	// unpublishedStop is the number of the stop until it is published, and earlierStop is the
	// number of the stop before it.
	stopUnnumbered               bool
	unpublishedStop, earlierStop uint64
}

// deadlines are the deadlines of an operation, as durations since the daemon started; 0 for none.
// attempt and queue are valid for the state that the operation entered at since. expiry is the same
// in every state.
type deadlines struct {
	state                  statefs.State
	since                  time.Time
	known                  bool // expiry has been computed
	attempt, queue, expiry time.Duration
}

// anySet reports whether a deadline is set, which only the memory of this daemon contains.
func (t *deadlines) anySet() bool { return t.attempt > 0 || t.queue > 0 || t.expiry > 0 }

// request is a request that the daemon has taken.
type request struct {
	statefs.TakenRequest
	logged     bool          // its log line is written
	cause      statefs.Cause // of the transition that it waits for, if it is awaiting
	carriedOut bool          // it was not refused, and what it asks for was done or was so already
	dropped    bool          // its file is removed
}

// seen is an observation of an operation, with what only its effect needs.
type seen struct {
	decide.Observation
	request  *request         // of Requested
	requests []statefs.Action // of WorkSeen: the requests that exist
	file     string           // of MarkerGone: the name under which the marker was found
	ahead    stepAhead        // of StepReached
	fault    *statefs.Fault   // of LimitExpired
	parent   *statefs.Record  // of ParentSeen
}

// markers returns the markers of a MarkersSeen.
func (x seen) markers() []statefs.State {
	o, _ := x.Observation.(decide.MarkersSeen)
	return o.States
}

// stepAhead is what follows in an operation with steps.
type stepAhead struct {
	def     *catalog.Definition
	params  catalog.Params
	skipped []string
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

// hasNoLog reports whether it is certain that nothing was written to the log.
func (op *operation) hasNoLog() bool { return op.isNew && !op.hasLog.Load() }

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

func (op *operation) workSeen(stopped bool) decide.WorkSeen {
	return decide.WorkSeen{Stopped: stopped, Optional: len(op.optionalSteps) > 0}
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

// progressNow returns the progress of an operation by its step statuses, which are newer than said,
// the last report of its run.
func progressNow(rec *statefs.Record, said statefs.Progress) *statefs.Progress {
	finished, all := steps.Progress(rec.Steps)
	total := int64(all)
	now := &statefs.Progress{Done: int64(finished), Total: &total, Phase: rec.Phase, At: said.At}
	if at := rec.CurrentStep(); at != nil && said.Step != nil && said.Step.Name == at.Name {
		now.Step = said.Step
	}
	return now
}

// stepNumber returns the number of a step, from 1.
func stepNumber(list []steps.Step, name string) int {
	return 1 + slices.IndexFunc(list, func(s steps.Step) bool { return s.Name == name })
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

// enter notes the state of the marker, which readers of the table do not see yet.
func (op *operation) enter(state statefs.State) {
	if op.state != state {
		op.publishedReason.Store(unpublished)
	}
	op.state = state
}

// wasPaused reports whether an operation was paused when the earlier daemon was gone: its work that
// was cut off had stopped before.
func (op *operation) wasPaused() bool {
	return op.state == statefs.Paused || op.rec.Status == statefs.Paused
}

// allowsOptionalSteps reports whether optional steps may start in the state of their operation.
// They may while its required steps wait, unless the operation is paused, ended or has not begun.
func (op *operation) allowsOptionalSteps() bool {
	switch op.state {
	case statefs.Running, statefs.Trailing, statefs.WaitingApproval, statefs.FailedManual, statefs.FailedRetryable:
		return len(op.rec.Steps) > 0
	case statefs.Queued:
		return op.rec.MainRun() > 0
	case statefs.Scheduled, statefs.Paused, statefs.Completed, statefs.Cancelled, statefs.Failed:
	}
	return false
}

// nextOptionalRetry returns when the next retry of an optional step is due, zero for never.
func (op *operation) nextOptionalRetry() (at time.Time) {
	for _, s := range op.rec.Steps {
		if s.Optional && s.Status == steps.FailedRetryable && s.DueAt != nil && (at.IsZero() || s.DueAt.Before(at)) {
			at = *s.DueAt
		}
	}
	return at
}
