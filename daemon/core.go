package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/alarm"
	"github.com/jobdir/jobdir/daemon/decide"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/live"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/notify"
	"github.com/jobdir/jobdir/stream"
)

// core is what all parts of the daemon share: the operations, the commit, and what a transition needs.
type core struct {
	committer
	operations
	lifetime

	config Config
	logger *slog.Logger
	// Lanes pauses, closes and resizes lanes according to the files in lanes/.
	Lanes          *lanes.Lanes
	history        *history.Store
	reconcileQueue *reconcileQueue
	// admission decides which queued operations start.
	admission *admission
	// alarms enqueues an operation when its next deadline expires.
	alarms *alarm.Alarms[statefs.ID]
	// queueQuota bounds how many operations wait to start.
	queueQuota queueQuota
	// waitFollowers tracks the operations for which every waiting reason is published.
	waitFollowers waitFollowers
	// definitions caches the job definitions under which live operations were submitted, by hash. It holds one
	// for each version of a job that was used since the daemon started.
	definitions lockedMap[string, *catalog.Definition]
	// unsettledIDs holds the IDs in jobs/ for which the daemon knows that its memory does not match their files:
	// those of foreign programs, operations that it could not take over, operations whose marker is missing, and
	// requests without an operation. Any other mismatch lasts at most one reconcile. The value is the state of
	// the marker if a reconcile left it to a foreign program.
	unsettledIDs lockedMap[statefs.ID, statefs.State]
	// ownSubmits holds the IDs that this process submits, until the watch reports their first marker. Created
	// enqueues them, so that event is dropped.
	ownSubmits     lockedMap[statefs.ID, bool]
	retentionClock retentionClock
	counters       counters
	startedAt      time.Time
	// pendingCallbacks run in the next reconcile of their operation.
	pendingCallbacks lockedMap[statefs.ID, []func(*operation)]
	// blockedFiles lists, by operation, the files at the name of a marker or request that the
	// daemon could not set aside and has reported.
	blockedFiles lockedMap[statefs.ID, []string]
}

// lifetime is how far the daemon is between its start and its end.
type lifetime struct {
	ready     chan struct{} // closed when all live operations are known
	stopping  atomic.Bool
	detaching atomic.Bool // if set, stop leaves commands running
	drain     drain
	fatal     chan error // the first fatal error
	stopped   chan struct{}
}

func (l *lifetime) isReady() bool { return notify.IsClosed(l.ready) }

// drain is the state of Drain: no work starts, and the daemon waits for the work that runs.
type drain struct {
	mu      sync.Mutex
	drained chan struct{} // closed when nothing runs; nil until Drain is called
	settled bool          // no reconcile runs that started before Drain and may start work
}

// counters holds counts since the daemon started.
type counters struct {
	transitions, requests, finished atomic.Uint64
	rescans, sweeps, swept, putBack atomic.Uint64
	failedReconciles                atomic.Uint64
}

// ErrStopped means that the daemon no longer runs.
var ErrStopped = errors.New("the daemon has stopped")

// submitListener hands what this process submits and requests to the daemon, without the round trip of
// an event. The event comes later and finds nothing to do. Until the daemon is ready, only events count.
type submitListener struct{ core *core }

// Expect implements statefs.SubmitListener.
func (l submitListener) Expect(recs ...*statefs.Record) { l.core.live.Announce(expectations(recs)...) }

// Announce implements statefs.SubmitListener. Lists and counts have the operation from now on.
func (l submitListener) Announce(rec *statefs.Record) {
	if l.core.isReady() {
		place := live.Place{Standing: decide.Arriving}
		if rec.Status == statefs.Running { // it starts with its submit
			place = live.Place{Standing: decide.Holding, Item: itemOfRecord(rec)}
		}
		shown := (&live.Snapshot{ID: rec.ID, Place: place}).Next(rec, rec.Status)
		l.core.queueQuota.settle(func() { l.core.live.Announce(shown) }, rec)
		l.core.ownSubmits.set(rec.ID, true)
	}
}

// Withdraw implements statefs.SubmitListener.
func (l submitListener) Withdraw(recs ...*statefs.Record) {
	l.core.queueQuota.settle(func() {
		for _, rec := range recs {
			l.core.admission.dropSubmitted(rec.ID)
			l.core.live.Withdraw(rec.ID)
			l.core.ownSubmits.take(rec.ID)
		}
	}, recs...)
	l.core.admission.admit()
}

// Created implements statefs.SubmitListener.
func (l submitListener) Created(name statefs.Name) {
	switch {
	case !l.core.isReady():
	case name.State == statefs.Running && l.core.admission.submitted.mark(name.ID):
		l.core.reconcileQueue.run(name.ID, name.Bit()) // its work begins
	default:
		l.core.reconcileQueue.enqueueNames(name.ID, name.Bit())
	}
}

func (c *core) track(op *operation) {
	op.shown = op.shown.Next(op.rec, op.state)
	standing := decide.Arriving
	if op.state != statefs.Queued || op.run != nil {
		standing = op.standing()
	}
	op.shown.Place = placeOf(op, standing)
	c.live.Add(op, op.shown)
	op.managed = true
	if standing == decide.Holding {
		c.admission.countStart(op.rec)
	}
	c.config.Intake.Track(op.rec)
	if !op.unsaved { // otherwise the first reconcile commits it
		op.shown = op.shown.Committed(op.rec)
		c.live.Commit(op.shown, op.rec)
	}
}

func (c *core) untrack(op *operation) {
	c.admission.releaseWaitingSteps(op)
	for name, s := range op.optionalSteps { // their commands stay with their keeper
		if s.own {
			c.admission.releaseStep(op, name)
		}
	}
	c.blockedFiles.take(op.id())
	c.alarms.Set(op.id(), time.Time{}, 0)
	c.config.Intake.Forget(op.rec) // before the end is published: then an equal submit begins a new operation
	c.live.Remove(op.shown, op.rec)
	op.managed = false
	c.enqueueChildren(op.id())
}

// A child names its parents when it is submitted, and they exist by then, so there are no cycles. The
// table only tells which children to reconcile when a parent ends; the reconcile decides by the records.

// enqueueChildren enqueues the children that wait for an operation which has ended.
func (c *core) enqueueChildren(parent statefs.ID) {
	for _, child := range c.live.Children(parent) {
		c.reconcileQueue.enqueue(child)
	}
}

// uptime returns how long the daemon has run, whatever happens to the machine's clock.
func (c *core) uptime() time.Duration { return time.Since(c.startedAt) }

// fail stops the daemon with err. Only the first error counts.
func (c *core) fail(err error) {
	select {
	case c.fatal <- err:
	default:
	}
}

// failOnSyncError ends the daemon if err is a failed sync, and returns err.
func (c *core) failOnSyncError(err error) error {
	if failed, ok := errors.AsType[*files.SyncError](err); ok {
		c.fail(failed)
	}
	return err
}

// isTransient reports whether a file could not be read or written but may be the next time, so that
// the work is not at fault.
func isTransient(err error) bool {
	_, disk := errors.AsType[*fs.PathError](err)
	return disk && !errors.Is(err, fs.ErrNotExist)
}

// definition returns the job definition under which the operation was submitted, and the
// parameters.
func (c *core) definition(rec *statefs.Record) (*catalog.Definition, catalog.Params, error) {
	def, err := c.storedDefinition(rec)
	if err != nil {
		return nil, catalog.Params{}, err
	}
	kept, err := rec.EffectiveParams()
	var params catalog.Params
	if err == nil {
		params, err = def.BindRecorded(kept)
	}
	if err != nil {
		return nil, catalog.Params{}, fmt.Errorf("job %s: %w", def.Address(), err)
	}
	return def, params, nil
}

func (c *core) storedDefinition(rec *statefs.Record) (*catalog.Definition, error) {
	if def, has := c.definitions.get(rec.Definition); has {
		return def, nil
	}
	if rec.Definition == "" {
		if def := c.config.Catalog.Get(rec.Group, rec.Job); def != nil {
			return def, nil
		}
		return nil, fmt.Errorf("job %s/%s is not defined", rec.Group, rec.Job)
	}
	def, err := catalog.Stored(c.owner.Tree, rec.Definition)
	if err != nil {
		return nil, fmt.Errorf("job %s/%s: %w", rec.Group, rec.Job, err)
	}
	c.definitions.set(rec.Definition, def)
	return def, nil
}

// currentWork returns the definition by which an operation works now: that of its job, or that of
// its current step. A gate has none.
func (c *core) currentWork(rec *statefs.Record) (*catalog.Definition, catalog.Params, error) {
	def, params, err := c.definition(rec)
	at := rec.CurrentStep()
	if err != nil || at == nil {
		return def, params, err
	}
	def, err = stepWork(def, at.Name)
	return def, params, err
}

func stepWork(def *catalog.Definition, name string) (*catalog.Definition, error) {
	step := def.Step(name)
	if step == nil || step.Work == nil {
		return nil, fmt.Errorf("job %s has no work for a step %q", def.Address(), name)
	}
	return step.Work, nil
}

// snapshot returns what a decision reads of an operation.
func (c *core) snapshot(op *operation) decide.Snapshot {
	s := decide.Snapshot{
		State: op.state, Ended: !op.managed, HasSteps: len(op.rec.Steps) > 0, Working: op.run != nil,
		Pausing: op.awaiting[decide.StopWork] != nil, Resume: decide.ResumeCause(op.rec, c.owner.Now()),
	}
	if r := op.awaiting[decide.EndWork]; r != nil {
		s.Ending, s.EndCause = r.Action, r.cause
	}
	return s
}

// env returns what else a decision reads.
func (c *core) env(op *operation) decide.Env {
	e := decide.Env{Draining: c.draining(), Stopping: c.stopping.Load()}
	if op.run != nil {
		e.Restart = op.run.Def().Restart()
	}
	return e
}

// openLog opens the log. If only the daemon writes to it (shared is false), the writer need
// not check the file before each line, and the file is created with the first line.
func (c *core) openLog(op *operation, shared bool) (*stream.Writer, error) {
	if op.log != nil {
		return op.log, nil
	}
	active := op.activeState
	if id := op.id(); !shared {
		op.log = stream.NewLazyWriter(func() (*os.File, error) {
			active.hasLog.Store(true)
			file, err := c.owner.Output.AppendLog(id, "")
			if err == nil {
				c.waitFollowers.logCreated(id)
			}
			return file, err
		})
		return op.log, nil
	}
	active.hasLog.Store(true)
	log, err := c.openSharedLog(op.id(), "")
	op.log = log
	return log, err
}

// openSharedLog opens the log of an operation or of one of its steps, to which commands write too.
func (c *core) openSharedLog(id statefs.ID, step string) (*stream.Writer, error) {
	file, err := c.owner.Output.AppendLog(id, step)
	if err == nil {
		var log *stream.Writer
		if log, err = stream.NewWriter(file); err == nil {
			return log, nil
		}
		err = errors.Join(err, file.Close())
	}
	if step != "" {
		return nil, fmt.Errorf("open the log of step %s of %s: %w", step, id, err)
	}
	return nil, fmt.Errorf("open the log of %s: %w", id, err)
}

func (c *core) closeLog(op *operation) {
	if op.log == nil {
		return
	}
	if err := op.log.Close(); err != nil {
		c.logger.Error("log not closed", "id", op.id(), "error", err)
	}
	op.log = nil
}

// logLine appends a line of the daemon to the log of an operation. A failure is only reported: the
// request takes effect all the same.
func (c *core) logLine(op *operation, line string) {
	if op.state == statefs.Trailing {
		c.logger.Info("operation", "id", op.id(), "says", line) // the log of the operation is sealed
		return
	}
	log, err := c.openLog(op, true)
	if err == nil {
		err = log.Line(line)
	}
	if err != nil {
		c.logger.Error("line not written to the log", "id", op.id(), "line", line, "error", err)
	}
}

// atReconcile runs fn with the next reconcile of an operation. fn gets nil if the daemon does not
// manage it.
func (c *core) atReconcile(id statefs.ID, fn func(op *operation)) {
	c.pendingCallbacks.update(id, func(waiting []func(*operation)) []func(*operation) { return append(waiting, fn) })
	c.reconcileQueue.enqueue(id)
}

func (c *core) draining() bool {
	c.drain.mu.Lock()
	defer c.drain.mu.Unlock()
	return c.drain.drained != nil
}

// checkDrained closes the channel of Drain when nothing runs.
func (c *core) checkDrained() {
	c.drain.mu.Lock()
	defer c.drain.mu.Unlock()
	if c.drain.settled && c.States()[statefs.Running] == 0 && !notify.IsClosed(c.drain.drained) {
		close(c.drain.drained)
	}
}

// repeat calls do at intervals from when the daemon is ready, until do returns false or ctx ends.
func (c *core) repeat(ctx context.Context, interval time.Duration, do func() (again bool)) {
	if c.awaitReady(ctx) != nil {
		return
	}
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for again := true; again; {
		select {
		case <-ticks.C:
			again = do()
		case <-ctx.Done():
			return
		}
	}
}

func (c *core) awaitReady(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-c.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}
