package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobdir/jobdir/daemon/alarm"
	"github.com/jobdir/jobdir/daemon/counts"
	"github.com/jobdir/jobdir/daemon/delivery"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/daemon/trigger"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
	"github.com/jobdir/jobdir/statefs/watch"
)

// Daemon decides what runs, runs it, and repairs the storage directory after a crash. See the
// package comment. Its parts are in layers: each uses only those above it in this list.
type Daemon struct {
	*core
	*publisher
	*waits
	*markers
	*ends
	*starts
	*optional
	*finisher
	*requests
	*decisions
	*reconciler
	*recovery
	*retention
	*sweeper

	files *watch.Files // the logs of commands that run
}

// newParts returns a daemon whose parts know each other.
func newParts(config Config) *Daemon {
	c := &core{
		startedAt: time.Now(), config: config, committer: committer{config.Owner}, history: config.History,
		logger: config.Logger,
	}
	c.waitFollowers.byID = make(map[statefs.ID]*followedOperation)
	c.fatal, c.ready, c.stopped = make(chan error, 1), make(chan struct{}), make(chan struct{})
	p := &publisher{core: c}
	c.live.Subscribe(p.publish)
	c.live.Subscribe(c.waitFollowers.forgetLogged)
	w := &waits{core: c, publisher: p}
	m := &markers{core: c, strayFiles: strayFiles{came: make(chan struct{}, 1)}}
	e := &ends{core: c}
	s := &starts{core: c, publisher: p, ends: e}
	o := &optional{core: c, starts: s}
	f := &finisher{core: c, publisher: p, ends: e, starts: s, optional: o}
	q := &requests{core: c, ends: e, starts: s}
	dc := &decisions{core: c, markers: m, ends: e, starts: s, optional: o, finisher: f, requests: q}
	dc.effects = dc.makeEffects()
	r := &reconciler{
		core: c, publisher: p, waits: w, markers: m, ends: e, starts: s, optional: o, decisions: dc,
		failing: failingOperations{logger: config.Logger, byID: make(map[statefs.ID]*failingEntry)},
	}
	return &Daemon{
		core: c, publisher: p, waits: w, markers: m, ends: e, starts: s, optional: o, finisher: f, requests: q,
		decisions: dc, reconciler: r, recovery: &recovery{core: c, markers: m, ends: e, starts: s},
		retention: &retention{core: c, ends: e}, sweeper: &sweeper{core: c, publisher: p, markers: m, ends: e},
	}
}

// New prepares a daemon and starts to watch the storage. It changes nothing; Run does.
func New(config Config) (*Daemon, error) {
	if err := config.setDefaults(); err != nil {
		return nil, err
	}
	d := newParts(config)
	d.workHost = work.Host{
		Owner: config.Owner, Logger: config.Logger, Starter: keeper.InProcess,
		Environ: config.Environ, Grace: config.Grace, StallAfter: config.StallAfter,
	}
	if config.Keepers != nil {
		d.workHost.Starter, d.workHost.Keepers = config.Keepers.Start, config.Keepers
	}
	d.reconcileQueue = newReconcileQueue(d.reconcileID)
	d.alarms = alarm.New(config.Owner.Now, d.uptime, d.reconcileQueue.enqueue)
	d.admission = newAdmission(&config, func(id statefs.ID) { d.reconcileQueue.enqueueNames(id, noNames) }, config.Owner.Now)
	d.admission.reserve = func() (func(), error) { return d.fdBudget.reserve(config.Owner.Descriptors.ForStart) }
	d.admission.onChange = d.queueChanged
	d.live.Subscribe(d.admission.follow)
	config.Owner.SetSubmitListener(submits{submitListener{d.core}, d.starts})
	var err error
	if d.dir, err = watch.OpenDir(config.Owner.JobsDir(), d.watchKeyOf, config.Watch); err != nil {
		return nil, fmt.Errorf("watch %s: %w", config.Owner.JobsDir(), err)
	}
	d.dir.Gone = watchKey.asGone
	d.files = watch.OpenFiles(config.Watch)
	d.workHost.Files = d.files
	if d.Lanes, err = lanes.New(lanes.Config{
		Owner: config.Owner, Queue: d.admission, Lanes: config.Lanes, Limits: config.Limits, Events: config.Events,
		Logger: config.Logger, Watch: config.Watch, Uptime: d.uptime,
	}); err != nil {
		return nil, errors.Join(err, d.dir.Close(), d.files.Close())
	}
	d.admission.onTrial, d.admission.startRecorded = d.Lanes.TrialChanged, d.Lanes.HasStart
	d.Trigger = trigger.New(trigger.Config{
		Owner: config.Owner, Catalog: config.Catalog, Intake: config.Intake, Logger: config.Logger, Watch: config.Watch,
		Interval: config.SweepInterval, Ready: d.ready, Reopened: d.Lanes.Reopened(),
		Stopping: func() bool { return d.draining() || d.stopping.Load() }, Fail: d.fail, Uptime: d.uptime,
	})
	if d.Deliveries, err = d.newDeliveries(); err != nil {
		return nil, errors.Join(err, d.dir.Close(), d.files.Close(), d.Lanes.Close())
	}
	return d, nil
}

// Close releases what New opened. It is only for a daemon whose Run is never called.
func (d *Daemon) Close() error {
	return errors.Join(d.dir.Close(), d.files.Close(), d.Lanes.Close(), d.Deliveries.Close())
}

// Run recovers the storage, then runs operations and carries out requests until ctx ends, and then
// interrupts the work that runs. If the cause of that end is ErrDetach, commands held by keepers
// continue instead. Run returns nil after such an end. Otherwise it returns the error that stopped
// the daemon, such as a removed folder or a failing disk; commands held by keepers continue then
// too. When Run returns, all its goroutines have ended, except a handler that ignores its context.
// Run may be called once.
func (d *Daemon) Run(ctx context.Context) error {
	defer close(d.stopped)
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer stopWatching()
	watchers.Go(func() { d.watcherEnded("jobs", d.dir.Run(watching)) })
	watchers.Go(func() { d.watcherEnded("outbox", d.Deliveries.Watch(watching)) })
	watchers.Go(func() { d.watcherEnded("logs", d.files.Run(watching)) })
	watchers.Go(func() { d.watcherEnded("history", d.history.Run(watching)) })
	watchers.Go(func() { d.runPruning(watching) })
	started := d.owner.Now()
	watchers.Go(func() {
		d.repeat(watching, d.config.SweepInterval, func() bool { return d.deleteUnanswered(watching, started) })
	})
	committing, stopCommitting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCommitting()
	begun, committed := make(chan struct{}), make(chan error, 1)
	watchers.Go(func() {
		err := d.owner.Journal.Use(committing, begun)
		if err != nil && !errors.Is(err, statefs.ErrBehind) {
			d.fail(err)
		}
		committed <- err
	})
	select {
	case <-begun:
	case err := <-committed:
		return err
	}
	if d.owner.Journal.Wanted() && !d.owner.Journal.InUse() {
		d.logger.Warn("the disk has no room for the journal: until the next start, changes are committed by the files of each operation")
	}
	d.Lanes.Reconcile() // the watch is in place, and nothing starts yet
	watchers.Go(func() { d.watcherEnded("lanes", d.Lanes.Run(watching)) })
	watchers.Go(func() { d.repeat(watching, d.config.SweepInterval, d.syncBatches) })
	watchers.Go(func() { d.alarms.Run(watching, d.logger) })
	watchers.Go(func() { d.Trigger.Run(watching) })

	if mode := d.dir.Mode(); mode.Name == watch.ModeScan {
		d.logger.Warn("changes are found by scanning", "folder", d.owner.JobsDir(), "reason", mode.Reason)
	}
	err := d.recover(watching)
	if err == nil {
		d.admission.enable()
		d.Lanes.ReconcileSoon() // the trial operation of a breaker may be gone
		close(d.ready)
		d.config.Intake.Ready()
		shipping, stopShipping := context.WithCancel(watching)
		var ships sync.WaitGroup
		ships.Go(func() { d.Deliveries.Deliver(shipping) })
		ships.Go(func() { d.awaitKeepers(shipping) })
		err = d.serve(ctx)
		stopShipping()
		ships.Wait() // reconciles still record the outcomes of deliveries
	}
	d.detaching.Store(d.config.Keepers != nil && (err != nil || errors.Is(context.Cause(ctx), ErrDetach)))
	d.stop() // ctx has ended; stop completes what is in progress
	d.Lanes.SaveStarts()
	stopCommitting()
	failed := <-committed
	if errors.Is(failed, statefs.ErrBehind) {
		d.logger.Warn("some files are not up to date; the next start writes them")
	} else if err == nil {
		err = failed
	}
	return err
}

func (d *Daemon) newDeliveries() (*delivery.Deliveries, error) {
	c := &d.config
	return delivery.New(delivery.Config{
		Owner: c.Owner, Events: c.Events, Logger: c.Logger, Watch: c.Watch, Settings: c.Outbox,
		AwaitReady: d.awaitReady, Fail: d.fail, Definition: d.storedDefinition, Job: d.jobOfEnded, Ended: d.withEndedRecord,
		Amend: func(rec *statefs.Record) error { return d.commit(rec.ID, change{rec: rec}, amendEnd) },
	})
}

func (d *Daemon) watcherEnded(what string, err error) {
	if err != nil {
		d.fail(fmt.Errorf("the watch of %s ended: %w", what, err))
	}
}

// serve handles every event that wakes the daemon, until ctx ends or a fatal error occurs.
func (d *Daemon) serve(ctx context.Context) error {
	sweep := time.NewTicker(d.config.SweepInterval)
	defer sweep.Stop()
	strayFiles, settled := d.strayFiles.came, (<-chan time.Time)(nil)
	for {
		select {
		case <-d.dir.Ready():
			d.takeEvents()
		case <-sweep.C:
			d.sweepAndLog(ctx)
		case <-strayFiles:
			strayFiles, settled = nil, time.After(settleTime)
		case <-settled:
			strayFiles, settled = d.strayFiles.came, nil // a file that came since settles by itself
			d.sweepAndLog(ctx)
		case err := <-d.fatal:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// takeEvents passes the events of the watch to the reconcile queue. It does nothing else, because
// the kernel's queue fills up while it runs.
func (d *Daemon) takeEvents() {
	d.watchMu.Lock()
	defer d.watchMu.Unlock()
	keys, rescan := d.dir.Take()
	keys = slices.DeleteFunc(keys, func(key watchKey) bool {
		op, s := d.live.Get(key.id)
		if op != nil {
			op.events.Add(1)
		}
		return d.isOldMarker(key, s) || !key.gone && d.ownSubmits.take(key.id)
	})
	d.admission.noteForeign(keys, d.manages)
	for _, key := range keys {
		d.reconcileQueue.enqueueNames(key.id, d.toObserve(key))
	}
	if rescan {
		d.rescan()
	}
}

// rescan lists jobs/ and enqueues every operation, because events were lost or are unavailable.
func (d *Daemon) rescan() {
	d.counters.rescans.Add(1)
	d.ownSubmits.clear() // their events may be lost
	if err := d.dir.Check(); err != nil {
		d.fail(err)
		return
	}
	listing, err := d.owner.List()
	if err != nil {
		d.fail(err)
		return
	}
	ids := listing.IDs()
	keys := make([]watchKey, 0, len(ids))
	for id := range ids {
		keys = append(keys, watchKey{id: id})
	}
	d.admission.noteForeign(keys, d.manages)
	for _, s := range d.live.All() {
		ids[s.ID] = statefs.AllNames
	}
	for id := range d.unsettledIDs.all() {
		ids[id] = statefs.AllNames // a foreign operation may have ended
	}
	for id := range ids {
		d.reconcileQueue.enqueue(id)
	}
}

// syncBatches syncs the records that batch submits have not synced yet. It is called once recovery has restored
// what a power cut destroyed of them.
func (d *Daemon) syncBatches() (again bool) {
	err := d.owner.Batches.Settle(time.Now().Add(-d.config.SweepInterval))
	if d.failOnSyncError(err) != nil {
		d.logger.Warn("records of batch submits not synced, retrying at the next sweep", "error", err)
	}
	return true
}

// stop interrupts the work that runs, or leaves it to the keepers, and waits for all reconciles and
// runs.
func (d *Daemon) stop() {
	d.sweeping.Lock() // no sweep runs from here on
	d.stopping.Store(true)
	d.sweeping.Unlock()
	d.admission.close()
	d.admission.AwaitStarts() // of submits that the journal may have already
	d.waitFollowers.close()
	d.reconcileQueue.wait() // a reconcile that started earlier may still start work; a later one does not
	for _, op := range d.allOperations() {
		if !op.evicted.Load() { // an evicted operation has no work
			d.reconcileQueue.enqueue(op.id()) // the reconcile sees that the daemon stops and interrupts the run
		}
	}
	d.awaitRuns()
	d.reconcileQueue.close()
	d.finishLastRuns()
	switch left := d.detachedCount.Load(); {
	case left > 0:
		d.logger.Info("commands continue without the daemon; the next daemon adopts them", "operations", left)
	case d.config.Keepers != nil:
		d.config.Keepers.Retire()
	}
}

// awaitRuns waits for the runs to end. Commands end within their grace period. A handler that
// ignores its context cannot be ended; awaitRuns gives up after one and a half times the longest
// grace period plus one second.
func (d *Daemon) awaitRuns() {
	ended := make(chan struct{})
	go func() {
		d.runs.Wait()
		close(ended)
	}()
	longest := d.config.Grace
	for _, def := range d.definitions.all() {
		longest = max(longest, def.Grace)
	}
	select {
	case <-ended:
	case <-time.After(longest + longest/2 + time.Second):
		d.logger.Error("a handler does not return although its context has ended; its operation starts again with the next daemon")
	}
}

// finishLastRuns records the outcome of the runs that were interrupted last. No reconcile runs any
// more.
func (d *Daemon) finishLastRuns() {
	for _, op := range d.allOperations() {
		if op.activeState == nil {
			continue
		}
		if len(op.optionalSteps) > 0 {
			d.runReconcile(op.id(), func() error { return d.finishOptionalSteps(op) })
		}
		if op.run != nil && op.run.Ended() {
			d.runReconcile(op.id(), func() error { return d.finish(op) })
		}
		d.closeLog(op)
	}
}

// Ready returns a channel that is closed once recovery is done and the daemon carries out requests.
func (d *Daemon) Ready() <-chan struct{} { return d.ready }

// Drain makes the daemon start no more work; new submits wait for the next daemon. The returned
// channel is closed when nothing runs: all work has ended or is paused. The daemon continues to
// serve requests.
func (d *Daemon) Drain() <-chan struct{} {
	d.drain.mu.Lock()
	if d.drain.drained == nil {
		d.drain.drained = make(chan struct{})
	}
	drained := d.drain.drained
	d.drain.mu.Unlock()
	d.admission.AwaitStarts()
	d.reconcileQueue.wait()
	d.drain.mu.Lock()
	d.drain.settled = true
	d.drain.mu.Unlock()
	d.checkDrained()
	d.queueChanged()
	return drained
}

// countWaiting returns how many operations wait for their time, their turn or their next attempt: all that will start
// by themselves. Operations that a person must release (paused, failed_manual) do not count.
func (d *Daemon) countWaiting() int {
	states := d.States()
	return states[statefs.Queued] + states[statefs.Scheduled] + states[statefs.FailedRetryable]
}

// retryAfterFull is when to retry after the queue was full.
const retryAfterFull = 5 * time.Second

// Admit refuses new operations; a list is refused as a whole. It returns a *submit.OptionError for
// an unknown lane or limit, and a *submit.BusyError for a closed lane or a full queue.
func (d *Daemon) Admit(drafts []*statefs.Record) error {
	if err := d.Lanes.Check(drafts); err != nil {
		return err
	}
	q, most := &d.queueQuota, d.config.MaxQueued
	if most == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	admitted := len(q.admitted.m)
	if admitted == 0 {
		q.admitted.m = nil // an emptied map keeps the memory of a long list
	}
	if waiting := d.countWaiting() + admitted; waiting+len(drafts) > most {
		text := fmt.Sprintf("The queue is full: %d operations wait, and max_queued is %d", waiting, most)
		if len(drafts) > 1 {
			text += fmt.Sprintf("; these would be %d more", len(drafts))
		}
		return &submit.BusyError{Text: text, Full: true, RetryAfter: retryAfterFull}
	}
	for _, rec := range drafts {
		q.admitted.set(rec.ID, true)
	}
	return nil
}

// Stats returns the statistics of all configured lanes and of all lanes that ever had an operation.
// It does not visit the operations either.
func (d *Daemon) Stats() api.LiveStats {
	s := api.LiveStats{At: d.owner.Now(), WindowSeconds: counts.WindowSeconds}
	s.Lanes, s.All = d.live.Counters().Lanes(s.At)
	for _, set := range d.admission.Lanes() {
		i, known := slices.BinarySearchFunc(s.Lanes, set.Name,
			func(l api.LaneStats, name string) int { return strings.Compare(l.Name, name) })
		if !known {
			s.Lanes = slices.Insert(s.Lanes, i, api.LaneStats{Name: set.Name, States: map[statefs.State]int{}, Ages: api.Ages{}})
		}
		s.Lanes[i].Held = set.Paused
		if set.Known && set.Capacity >= 0 {
			s.Lanes[i].Capacity = &set.Capacity
		}
	}
	return s
}

// Health returns the health report. It may be called at any time. It also checks whether the watched folder is still
// the one in the storage, because some ways to lose it cause no event, and ends the daemon if it is not.
func (d *Daemon) Health() api.Health {
	h := api.Health{
		Draining: d.draining(), Watch: api.WatchMode(d.dir.Mode()), Live: d.States(),
		FailingOperations: d.failing.list(),
	}
	if d.config.Keepers != nil {
		for _, s := range d.config.Keepers.Silent() {
			h.FailingOperations = append(h.FailingOperations,
				api.FailingOperation{Error: fmt.Sprintf("keeper %d (PID %d) does not answer: continue it (kill -CONT %d) or kill it",
					s.Keeper, s.PID, s.PID), Since: s.Since, Tries: 1})
		}
	}
	h.Ready = d.isReady() && !d.stopping.Load()
	if gone, is := errors.AsType[*watch.GoneError](d.dir.Check()); is && h.Ready {
		h.Ready = false
		d.fail(gone)
	}
	if s, inUse := d.owner.Journal.Status(); inUse {
		h.Journal = &api.JournalStatus{
			Segments: s.Segments, Full: s.Full, Behind: s.Behind, Lack: textOf(s.Lack), Unwritten: textOf(s.Unwritten),
		}
	}
	stats := d.dir.Stats()
	h.Counters = map[string]uint64{
		"transitions": d.counters.transitions.Load(), "requests": d.counters.requests.Load(),
		"finished": d.counters.finished.Load(),
		"rescans":  d.counters.rescans.Load(), "sweeps": d.counters.sweeps.Load(), "swept": d.counters.swept.Load(),
		"put_back": d.counters.putBack.Load(), "failed_looks": d.counters.failedReconciles.Load(),
		"events": stats.Events, "unknown_names": stats.Unknown, "overflows": stats.Overflows,
		"ignored_files": d.countIgnored(),
	}
	return h
}

// textOf returns the text of an error, "" for none.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// DiskFailed ends the daemon because of a disk error that occurred outside of it, such as a failed
// sync during a submit. After such an error the contents of the disk are unknown.
func (d *Daemon) DiskFailed(err error) { d.fail(err) }
