package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/events"
	"github.com/jobdir/jobdir/history"
	"github.com/jobdir/jobdir/keeper"
	"github.com/jobdir/jobdir/outbox"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
	"github.com/jobdir/jobdir/submit"
	"github.com/jobdir/jobdir/tally"
)

// DefaultSweepInterval is the time between two sweeps.
const DefaultSweepInterval = 60 * time.Second

// Config says what a daemon needs. Owner and Catalog are required; everything else has a default.
type Config struct {
	// Owner is the storage directory with its lock held. The daemon does not release it.
	Owner *statefs.Owner
	// Catalog is asked for a definition only when the one that an operation was submitted under is not kept.
	Catalog *catalog.Catalog
	// Handlers are the Go functions that definitions may name.
	Handlers Handlers
	// Logger gets what the daemon does and what it finds; nil discards it.
	Logger *slog.Logger
	// Keepers hold the commands, which outlive the daemon then, and are not closed by it; nil: commands are children of this
	// process, and are interrupted when it ends.
	Keepers Keepers
	// Grace is the time between SIGTERM and SIGKILL, for jobs that say none. Default 10 s.
	Grace time.Duration
	// SweepInterval is the time between two sweeps. Default 60 s.
	SweepInterval time.Duration
	// Lanes are the lanes by name. DefaultLane is there without being set.
	Lanes map[string]LaneConfig
	// Limits are the capacities of the limits by name.
	Limits map[string]int
	// Ageing is how much waiting one point of priority is worth; 0: priority alone decides.
	Ageing time.Duration
	// MaxQueued is how many operations may wait to start before Admit refuses further ones; 0: any number.
	MaxQueued int
	// Environ gives the environment that commands inherit, asked at each start. Default os.Environ.
	Environ func() []string
	// Watch adjusts how jobs/ is watched; the zero value is right.
	Watch watch.Options
	// History is the index of what has ended, which the daemon runs and does not close; nil: one of its own.
	History *history.Store
	// Intake is told of every live operation and of every end, and that all are known; nil: nobody is.
	Intake *submit.Intake
	// Retention says how long what has ended is kept; the zero value is for ever.
	Retention history.Retention
	// Events takes what happens; the daemon does not close it. nil: nobody is told.
	Events *events.Log
	// WebhookAllow are the networks, beside the public ones, that webhooks may connect to.
	WebhookAllow []netip.Prefix
	// OutboxProbe is the least time between two tries at a target of deliver that is down; 0 is outbox.ProbeInterval.
	OutboxProbe time.Duration
	// S3PartBytes is the size of the parts in which larger files go to buckets; 0 is outbox.DefaultPartBytes.
	S3PartBytes int64
	// OutboxWorkers is how many deliveries run at once, OutboxPerTarget how many of them at one target; 0 is the default of outbox.Config.
	OutboxWorkers, OutboxPerTarget int
}

func (c *Config) fill() error {
	if c.Owner == nil || c.Catalog == nil {
		return errors.New("daemon: Owner and Catalog are required")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Grace == 0 {
		c.Grace = keeper.DefaultGrace
	}
	if c.SweepInterval == 0 {
		c.SweepInterval = DefaultSweepInterval
	}
	if c.Grace < 0 || c.SweepInterval < 0 {
		return errors.New("daemon: Grace and SweepInterval must not be negative")
	}
	if c.Environ == nil {
		c.Environ = os.Environ
	}
	return nil
}

// Daemon decides what runs, runs it, and brings the storage directory back into order after anything.
type Daemon struct {
	config  Config
	owner   *statefs.Owner
	logger  *slog.Logger
	starter keeper.Starter
	dir     *watch.Dir[touched]
	files   *watch.Files
	looks   *looks
	// admission says which of the queued operations begin.
	admission *admission
	// chains are the operations that come after others.
	chains chains
	// lanes are what pauses, closes and sizes them.
	lanes *lanes
	// room bounds how many wait.
	room room
	// waiters are the operations of which each reason to wait is told.
	waiters waiters
	moves   repeats
	// beginning is what takes the descriptors that it needs.
	beginning beginning
	// troubles are the operations that cannot be dealt with at the moment.
	troubles troubles
	runs     sync.WaitGroup
	// alarms have an operation looked at when its time comes.
	alarms *alarms[alarmKey]
	// behind has the start of a run written down that goes on for a while.
	behind    behind
	scheduler *scheduler

	outbox  *outbox.Outbox
	sender  *outbox.Sender
	buckets *http.Transport
	// entries watches outbox/, and wantOutbox has all of it compared with what is in memory.
	entries    *watch.Dir[statefs.EntryName]
	wantOutbox chan struct{}
	deliveries deliveryCounts

	history *history.Store
	// living are the rows of ops, for lists, and doubts the IDs whose markers may say something else.
	living  history.Living
	doubts  doubts
	passing sync.Mutex // held while what the watch tells is passed on to looks
	pruning sync.Mutex // one prune at a time
	steady  steady
	began   time.Time

	mu  sync.RWMutex // guards ops, inside and stuck
	ops map[statefs.ID]*operation
	// inside waits for the next look at an operation.
	inside map[statefs.ID][]func(*operation)
	// whenReady are looked at when the daemon serves.
	whenReady []statefs.ID
	// stuck are the files in the way of an operation that could not be set aside and were reported.
	stuck map[statefs.ID][]string

	// held is what the keepers had in hand when this daemon began, while it makes its way through.
	held map[statefs.ID][]keeper.Held
	// straysSince is when the commands of no living keeper were ended, zero when there were none: how they ended is no verdict of theirs.
	straysSince time.Time
	// leftCount is how many operations go on without the daemon.
	leftCount atomic.Int64

	stopping    atomic.Bool
	leaving     atomic.Bool // commands are left running
	drain       drain
	failure     chan error // the first fatal error
	ready       chan struct{}
	sweeps      chan sweepOrder
	stopped     chan struct{}
	counters    counters
	tally       tally.Tally
	definitions definitions
	strangers   *strangers
	// reported has the reason of each file that the last sweep found and left alone, and sweepError what it could not do. Both
	// belong to the goroutine that sweeps.
	reported   map[string]string
	sweepError string
}

type sweepOrder struct {
	dryRun bool
	answer chan sweepAnswer
}

type sweepAnswer struct {
	findings []statefs.Finding
	err      error
}

// New prepares a daemon and begins to watch; nothing is changed before Run.
func New(config Config) (*Daemon, error) {
	if err := config.fill(); err != nil {
		return nil, err
	}
	d := &Daemon{
		began: time.Now(), config: config, owner: config.Owner, logger: config.Logger, troubles: troubles{logger: config.Logger},
		ops: make(map[statefs.ID]*operation), stuck: make(map[statefs.ID][]string), failure: make(chan error, 1), ready: make(chan struct{}), drain: drain{look: make(chan struct{}, 1)},
		wantOutbox: make(chan struct{}, 1), sweeps: make(chan sweepOrder), stopped: make(chan struct{}), strangers: newStrangers(statefs.SettleAge + time.Second),
	}
	d.starter = keeper.InProcess{}
	if config.Keepers != nil {
		d.starter = config.Keepers
	}
	d.looks = newLooks(d.look)
	d.behind.want = func(id statefs.ID) {
		if d.manages(id) {
			d.looks.wantNames(id, 0)
		}
	}
	d.alarms = newAlarms(config.Owner.Now, d.ran, d.ring)
	d.scheduler = newScheduler(d)
	d.alarms.reset = d.scheduler.wantAll
	d.admission = newAdmission(&config, func(id statefs.ID) { d.looks.wantNames(id, 0) }, config.Owner.Now)
	d.admission.changed = d.waitingChanged
	d.lanes = newLanes(&d.config, d.admission, d.ran)
	d.room.waiting = d.waitingNow
	d.outbox = outbox.New(outbox.Config{
		Workers: config.OutboxWorkers, PerTarget: config.OutboxPerTarget, Probe: config.OutboxProbe, Deliver: d.deliver, Changed: d.targetChanged,
	})
	d.sender = outbox.NewSender(config.WebhookAllow)
	d.buckets = outbox.NewS3Transport()
	var err error
	if d.dir, err = watch.OpenDir(config.Owner.JobsDir(), d.touchedBy, config.Watch); err != nil {
		return nil, fmt.Errorf("watch %s: %w", config.Owner.JobsDir(), err)
	}
	if d.files, err = watch.OpenFiles(config.Watch); err != nil {
		return nil, errors.Join(fmt.Errorf("watch logs: %w", err), d.dir.Close())
	}
	if err := d.lanes.open(); err != nil {
		return nil, errors.Join(err, d.dir.Close(), d.files.Close())
	}
	if err := d.openOutbox(); err != nil {
		return nil, errors.Join(err, d.dir.Close(), d.files.Close(), d.lanes.dir.Close())
	}
	if err := d.openHistory(); err != nil {
		return nil, errors.Join(err, d.dir.Close(), d.files.Close(), d.lanes.dir.Close(), d.entries.Close())
	}
	return d, nil
}

// Close releases what New opened, for a daemon whose Run is never called.
func (d *Daemon) Close() error {
	return errors.Join(d.dir.Close(), d.files.Close(), d.lanes.dir.Close(), d.entries.Close(), d.closeHistory())
}

// Run brings the storage into order, carries out what it is asked for until ctx ends, and then interrupts the work that runs; when
// the cause of that end is ErrLeave, commands in the hands of keepers go on. It returns nil after such an end, and otherwise what made it stop: a
// folder that was taken away, or a disk that fails, and then commands go on too. When it returns, nothing else that it began is left. It
// may be called once.
func (d *Daemon) Run(ctx context.Context) (err error) {
	defer close(d.stopped)
	defer func() { err = errors.Join(err, d.closeHistory()) }()
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer stopWatching()
	watchers.Go(func() { d.watcherEnded("jobs", d.dir.Run(watching)) })
	watchers.Go(func() { d.watcherEnded("outbox", d.entries.Run(watching)) })
	watchers.Go(func() { d.keepOutbox(watching) })
	watchers.Go(func() { d.watcherEnded("logs", d.files.Run(watching)) })
	watchers.Go(func() { d.watcherEnded("history", d.history.Run(watching)) })
	watchers.Go(func() { d.keepPruning(watching) })
	watchers.Go(func() { d.keepInbox(watching) })
	d.lanes.look() // the watch is in place, and nothing starts yet
	watchers.Go(func() { d.watcherEnded("lanes", d.lanes.run(watching)) })
	watchers.Go(func() { d.keepLists(watching) })
	watchers.Go(func() { d.keepTime(watching) })
	watchers.Go(func() { d.scheduler.run(watching) })

	if mode := d.dir.Mode(); mode.Name == watch.ModeScan {
		d.logger.Warn("changes are found by scanning", "folder", d.owner.JobsDir(), "reason", mode.Reason)
	}
	defer d.strangers.stop()
	if err = d.recover(watching); err == nil {
		d.admission.begin()
		d.lanes.want() // whoever a breaker had let through may be gone
		close(d.ready)
		d.mu.Lock()
		late := d.whenReady
		d.mu.Unlock()
		for _, id := range late {
			d.looks.want(id)
		}
		shipping, stopShipping := context.WithCancel(watching)
		var ships sync.WaitGroup
		ships.Go(func() { d.outbox.Run(shipping) })
		err = d.serve(ctx)
		stopShipping()
		ships.Wait() // while looks still write down what was delivered
		d.sender.Close()
		d.buckets.CloseIdleConnections()
	}
	d.leaving.Store(d.config.Keepers != nil && (err != nil || errors.Is(context.Cause(ctx), ErrLeave)))
	d.stop() //nolint:contextcheck // ctx has ended; what is under way is carried to its end
	d.lanes.starts.close()
	return err
}

func (d *Daemon) watcherEnded(what string, err error) {
	if err != nil {
		d.fail(fmt.Errorf("the watch of %s ended: %w", what, err))
	}
}

// serve lists every reason to wake.
func (d *Daemon) serve(ctx context.Context) error {
	sweep := time.NewTicker(d.config.SweepInterval)
	defer sweep.Stop()
	for {
		select {
		case <-d.dir.Ready():
			d.takeEvents()
		case <-sweep.C:
			d.sweepAndLog(ctx)
		case <-d.strangers.sweep:
			d.sweepAndLog(ctx)
		case <-d.drain.look:
			d.noteDrained()
		case order := <-d.sweeps:
			findings, err := d.sweep(ctx, order.dryRun)
			order.answer <- sweepAnswer{findings, err}
		case err := <-d.failure:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// takeEvents passes on what the watch says. It does nothing else: while it runs, the kernel's queue fills.
func (d *Daemon) takeEvents() {
	d.passing.Lock()
	defer d.passing.Unlock()
	keys, rescan := d.dir.Take()
	for _, key := range keys {
		if op := d.operation(key.id); op != nil {
			op.events.Add(1)
		}
		d.looks.wantNames(key.id, key.names)
	}
	if rescan {
		d.rescan()
	}
}

// rescan lists jobs/ and has everything looked at, because events were lost or are not to be had.
func (d *Daemon) rescan() {
	d.counters.rescans.Add(1)
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
	d.mu.RLock()
	for id := range d.ops {
		ids[id] = statefs.AllNames
	}
	d.mu.RUnlock()
	for id := range ids {
		d.looks.want(id)
	}
}

// fail ends the daemon; the first reason counts.
func (d *Daemon) fail(err error) {
	select {
	case d.failure <- err:
	default:
	}
}

// stop interrupts the work that runs, or leaves it to the keepers, and waits for everything.
func (d *Daemon) stop() {
	d.stopping.Store(true)
	d.admission.close()
	d.waiters.close()
	d.behind.close()
	d.looks.wait() // a look that began before may still start work; none that begins now does
	for _, op := range d.all() {
		if !op.parked.Load() { // those have no work
			d.looks.want(op.id()) // each look sees that the daemon stops and interrupts
		}
	}
	d.awaitRuns()
	d.looks.close()
	d.settle()
	switch left := d.leftCount.Load(); {
	case left > 0:
		d.logger.Info("commands go on without the daemon; the next one finds them", "operations", left)
	case d.config.Keepers != nil:
		d.config.Keepers.Retire()
	}
}

// endWork asks the work of a run to end because the daemon stops.
func (d *Daemon) endWork(r *run) {
	if d.leaving.Load() && r.handler.Run == nil {
		r.leave()
		return
	}
	r.end(ErrInterrupted)
}

// awaitRuns waits for the work to end. Commands do within their grace period; a handler that does not heed its context cannot be
// ended, and is left behind after as long.
func (d *Daemon) awaitRuns() {
	ended := make(chan struct{})
	go func() {
		d.runs.Wait()
		close(ended)
	}()
	longest := max(d.config.Grace, d.definitions.longestGrace())
	late := time.NewTimer(longest + longest/2 + time.Second)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
		d.logger.Error("a handler does not return although its context has ended; its operation starts again with the next daemon")
	}
}

// settle writes down what the runs that were interrupted last left behind. No look runs any more.
func (d *Daemon) settle() {
	for _, op := range d.all() {
		if op.attention == nil {
			continue
		}
		if len(op.sides) > 0 {
			d.guardLook(op.id(), func() error { return d.finishSides(op) })
		}
		if op.run != nil && op.run.ended() {
			d.guardLook(op.id(), func() error { return d.finish(op) })
			d.tell(op)
		}
		d.closeLog(op)
	}
}

func (d *Daemon) all() []*operation {
	d.mu.RLock()
	defer d.mu.RUnlock()
	ops := make([]*operation, 0, len(d.ops))
	for _, op := range d.ops {
		ops = append(ops, op)
	}
	return ops
}

func (d *Daemon) operation(id statefs.ID) *operation {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.ops[id]
}

func (d *Daemon) manages(id statefs.ID) bool { return d.operation(id) != nil }

func (d *Daemon) keep(op *operation) {
	if len(op.rec.After) > 0 {
		d.chains.name(op.id(), op.rec.After) // before it is in hand: see guards
	}
	d.mu.Lock()
	d.ops[op.id()] = op
	d.mu.Unlock()
	op.enlist(&d.living)
	d.room.came(op.rec.Starts == 0 && isClosed(d.ready), func() { op.count(&d.tally) })
	if d.config.Intake != nil {
		d.config.Intake.Note(op.rec)
	}
}

func (d *Daemon) forget(op *operation) {
	d.admission.leaveSides(op)
	for name, s := range op.sides { // left to their keeper
		if s.apart {
			d.admission.leaveSide(op, name)
		}
	}
	d.mu.Lock()
	delete(d.ops, op.id())
	delete(d.stuck, op.id())
	d.mu.Unlock()
	d.chains.name(op.id(), nil)
	op.recount("")
	op.delist()
	d.alarms.set(alarmKey{id: op.id()}, time.Time{}, 0)
	if d.config.Intake != nil {
		d.config.Intake.Forget(op.rec)
	}
	d.wakeChildren(op.id())
}

// Ready is closed when the storage is in order and requests are carried out.
func (d *Daemon) Ready() <-chan struct{} { return d.ready }
