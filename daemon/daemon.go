package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/alarm"
	"github.com/jobdir/jobdir/daemon/breaker"
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/daemon/trigger"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// Config configures a daemon. Owner, Catalog, History and Intake are required; every other field has a default.
type Config struct {
	// Owner is the storage directory with its lock held. The daemon does not release the lock.
	Owner *statefs.Owner
	// Catalog supplies the job definitions for schedules, follow-ups and inbox submits. A submitted
	// operation uses the definition stored with it, and the catalog only if its record names none.
	Catalog *catalog.Catalog
	// Handlers are the Go functions that job definitions may name.
	Handlers Handlers
	// Logger receives log messages; nil discards them.
	Logger *slog.Logger
	// Keepers run the commands, which then outlive the daemon. The daemon does not close them. If
	// Keepers is nil, commands are children of this process and are interrupted when it ends.
	Keepers *keeper.Pool
	// Grace is the time between SIGTERM and SIGKILL for jobs that do not set one. Default 10 s.
	Grace time.Duration
	// CrashLimit is how often work may die, for jobs that do not set a limit. Zero fields take
	// their value from catalog.DefaultCrashLimit.
	CrashLimit catalog.CrashLimit
	// StallAfter is the time without a sign of life after which work is shown as stalled, for jobs
	// that do not set one. Default 0: never.
	StallAfter time.Duration
	// SweepInterval is the time between two sweeps. Default 60 s.
	SweepInterval time.Duration
	// Lanes configures the lanes by name. statefs.DefaultLane always exists.
	Lanes map[string]LaneConfig
	// Limits are the capacities of the limits by name.
	Limits map[string]int
	// Ageing is the waiting time that counts as much as one point of priority; 0: only priority
	// counts.
	Ageing time.Duration
	// MaxQueued is how many operations may wait to start before Admit refuses more; 0: no bound.
	MaxQueued int
	// Environ returns the environment that commands inherit. It is called at each start. Default
	// os.Environ.
	Environ func() []string
	// Watch adjusts how jobs/ is watched; the zero value suits production.
	Watch watch.Options
	// History is the index of ended operations. The daemon runs it and does not close it.
	History *history.Store
	// Intake takes the submits. It is notified of every live operation, of every end, and when all live
	// operations are known.
	Intake *submit.Intake
	// Retention is how long ended operations are kept; the zero value keeps them forever.
	Retention history.Retention
	// Events is the log to which the daemon publishes events. The daemon does not close it; may be
	// nil.
	Events *events.Log
	// Outbox are the settings of deliveries; the zero value suits production.
	Outbox OutboxSettings
}

func (c *Config) setDefaults() error {
	if c.Owner == nil || c.Catalog == nil || c.History == nil || c.Intake == nil {
		return errors.New("daemon: Owner, Catalog, History and Intake are required")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Grace == 0 {
		c.Grace = keeper.DefaultGrace
	}
	c.CrashLimit = c.CrashLimit.Or(catalog.DefaultCrashLimit)
	if c.SweepInterval == 0 {
		c.SweepInterval = time.Minute
	}
	if c.Grace < 0 || c.SweepInterval < 0 || c.StallAfter < 0 {
		return errors.New("daemon: Grace, SweepInterval and StallAfter must not be negative")
	}
	if c.Environ == nil {
		c.Environ = os.Environ
	}
	return nil
}

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
	config.Owner.SetSubmitListener(submitListener{d.core})
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
	return err
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

// stop interrupts the work that runs, or leaves it to the keepers, and waits for all reconciles and
// runs.
func (d *Daemon) stop() {
	d.sweeping.Lock() // no sweep runs from here on
	d.stopping.Store(true)
	d.sweeping.Unlock()
	d.admission.close()
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
	late := time.NewTimer(longest + longest/2 + time.Second)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
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

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// drain is the state of Drain: no work starts, and the daemon waits for the work that runs.
type drain struct {
	mu      sync.Mutex
	drained chan struct{} // closed when nothing runs; nil until Drain is called
	settled bool          // no reconcile runs that started before Drain and may start work
}

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
	d.reconcileQueue.wait()
	d.drain.mu.Lock()
	d.drain.settled = true
	d.drain.mu.Unlock()
	d.checkDrained()
	d.queueChanged()
	return drained
}

// checkDrained closes the channel of Drain when nothing runs.
func (c *core) checkDrained() {
	c.drain.mu.Lock()
	defer c.drain.mu.Unlock()
	if c.drain.settled && c.States()[statefs.Running] == 0 && !isClosed(c.drain.drained) {
		close(c.drain.drained)
	}
}

// The types of handlers, so that a program with handlers imports this package only.
type (
	// Handler is Go code that does the work of a job.
	Handler = work.Handler
	// Handlers maps the names that definitions use to handlers.
	Handlers = work.Handlers
	// Op is the operation as its handler sees it.
	Op = work.Op
	// Item is one unit of work of a run.
	Item = work.Item
	// AttemptError is a handler's error that also determines what happens next.
	AttemptError = work.AttemptError
)

// The causes with which work is ended early. A handler gets them from context.Cause.
var (
	// ErrCancelled means that the operation was cancelled.
	ErrCancelled = work.ErrCancelled
	// ErrInterrupted means that the daemon stops; the operation continues when the daemon starts again.
	ErrInterrupted = work.ErrInterrupted
)

// ErrDetach is the cause with which the context of Daemon.Run ends if commands are to continue
// without the daemon.
var ErrDetach = errors.New("the daemon stops and leaves its commands running")

// RetryAfter wraps err as a failure that is worth a retry, after a wait of at least 1 ms.
func RetryAfter(err error, wait time.Duration) error { return work.RetryAfter(err, wait) }

// NeedsPerson wraps err as a failure that only a person can fix: the operation becomes
// failed_manual.
func NeedsPerson(err error) error { return work.NeedsPerson(err) }

// What a lane is configured with.
type (
	// LaneConfig is the configuration of a lane.
	LaneConfig = lanes.LaneConfig
	// BreakerConfig says when a lane pauses itself.
	BreakerConfig = breaker.Settings
)

// reportToBreaker reports the end of an operation's run to the breaker of its lane, with the class of
// its failure.
func (f *finisher) reportToBreaker(op *operation, class catalog.Class) {
	v, names, exit := lanes.NoVerdict, []string(nil), ""
	switch {
	case op.endCause == statefs.CauseDone:
		v = lanes.Success
	case op.rec.Error != nil && class != catalog.ClassWarn:
		v, names = lanes.Failure, []string{op.rec.Error.Code, string(class)}
		if op.rec.ExitCode != nil && *op.rec.ExitCode != 0 {
			exit = strconv.Itoa(*op.rec.ExitCode)
			names = append(names, exit)
		}
	}
	f.Lanes.RunEnded(laneOf(op.rec), op.id(), v, exit, names...)
}
