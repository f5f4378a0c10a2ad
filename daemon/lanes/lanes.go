// Package lanes applies the files of lanes/ and the breakers to the queue, and tells what it knows of the lanes.
//
//	lanes/cookie.paused ──event──▶ Reconcile ──compare──▶ Queue.SetLanes, an event, a log line
//	a run has ended ─────────────▶ RunEnded ──breaker──▶ lanes/cookie.paused, by: breaker
//	an until has come ───alarm───▶ Reconcile ──▶ the file is removed
//
// The files are the authority. A Reconcile reads all of them: they are few and change seldom. What starts next is
// for the queue to decide, and what an operation is the package does not know.
//
// Beside the files that people write, it keeps three of its own for each lane, so that a restart forgets nothing: the
// failures that its breaker counts, the starts that its rate counts, and the turn of its rotating environment. If one
// of these cannot be written, a line of the log says what a restart then forgets, and the work goes on.
package lanes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/daemon/alarm"
	"github.com/jobdir/jobdir/daemon/breaker"
	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/notify"
	"github.com/jobdir/jobdir/statefs/watch"
)

// Config is what the lanes work with.
type Config struct {
	Owner  *statefs.Owner
	Queue  Queue
	Lanes  map[string]LaneConfig
	Limits map[string]int // the capacities of the limits by name
	Events *events.Log    // may be nil
	Logger *slog.Logger
	Watch  watch.Options
	Uptime func() time.Duration // how long the daemon has run
}

// LaneConfig is the configuration of a lane. The zero value starts nothing, because its capacity is
// 0.
type LaneConfig struct {
	queue.Lane
	// Env holds NAME=value entries for every command that starts in the lane. Entries of the job
	// override them.
	Env []string
	// Rotate maps a variable to its values, which successive runs get in rotation.
	Rotate map[string][]string
	// Breaker pauses the lane after failures; nil disables it.
	Breaker *breaker.Settings
}

// Queue decides what starts in the lanes, and knows what has started. It may call TrialChanged and HasStart while its
// lock is held.
type Queue interface {
	decisions
	standing
}

type standing interface {
	// Lanes and Limits return their state, by name.
	Lanes() []queue.LaneStats
	Limits() []statefs.LimitStatus
	// AwaitStarts returns when every start that is pending now has happened or failed.
	AwaitStarts()
}

type decisions interface {
	// SetLanes adds or changes lanes in one decision.
	SetLanes(all ...Change)
	// TakeTrial returns the trial operation that a lane has admitted, once.
	TakeTrial(lane string) (statefs.ID, bool)
	// TrialEnded reports whether a trial operation has released its place. It returns false until all
	// running operations are known.
	TrialEnded(id statefs.ID) bool
	// RestoreStarts counts starts of earlier daemons. Nothing runs yet.
	RestoreStarts(lane string, at []time.Time)
	// Changed is called when a reason to wait has changed that the queue does not know.
	Changed()
}

// Change is a new configuration of a lane. If Trial is set, the lane admits a single operation, which
// TakeTrial returns, and then pauses.
type Change struct {
	Lane   string
	Config queue.Lane
	Trial  bool
}

// Lanes applies the files of lanes/ and the breakers to the queue, and keeps the starts and turns of each lane.
type Lanes struct {
	config Config
	alarms *alarm.Alarms[statefs.LaneFile]
	wake   chan struct{} // requests a reconcile

	// mu guards the fields below. It is held while a reconcile reads and writes files, and is
	// locked before the lock of the queue.
	mu         sync.Mutex
	dir        *watch.Dir[statefs.LaneFile]
	byName     map[string]*lane
	strayFiles []statefs.LaneProblem // files that control nothing
	// reconciled is set by the first reconcile. Only changes after it are published.
	reconciled bool

	// holds has the pauses and closes by their files. Submits, and what explains why an operation waits, read it without
	// waiting for a reconcile.
	holds atomic.Pointer[map[statefs.LaneFile]statefs.LaneHold]
	// reopened wakes submissions that wait. It gets a value when a lane accepts submits again or
	// its close changes.
	reopened chan struct{}

	rotation envRotation
	starts   startHistory
}

// lane is the state of one lane, or of AllLanes.
type lane struct {
	name    string
	config  LaneConfig
	files   map[statefs.LaneControl]*file
	breaker *breaker.Breaker // nil if the lane has none
	// pauseWritten means that the breaker's pause is on disk, so that removing it resumes the lane.
	pauseWritten bool
	// savedFailures are the failures below the threshold that are on disk.
	savedFailures []time.Time
	// published is the state that was published last.
	published applied
}

// New starts to watch lanes/, and gives the starts of earlier daemons to the queue. Reconcile after it.
func New(c Config) (*Lanes, error) {
	l := &Lanes{
		config: c, wake: make(chan struct{}, 1), byName: make(map[string]*lane),
		reopened: make(chan struct{}, 1), rotation: envRotation{last: make(map[string]uint64)},
	}
	l.alarms = alarm.New(c.Owner.Now, c.Uptime, func(statefs.LaneFile) { l.reconcileSoon() })
	configs := map[string]LaneConfig{statefs.DefaultLane: {Lane: queue.Lane{Capacity: queue.Unlimited}}}
	maps.Copy(configs, c.Lanes)
	configs[statefs.AllLanes] = LaneConfig{}
	for name, config := range configs {
		s := &lane{name: name, config: config, files: make(map[statefs.LaneControl]*file)}
		for _, f := range filesOf(name) {
			s.files[f.Control] = &file{}
		}
		if config.Breaker != nil {
			s.breaker = breaker.New(*config.Breaker)
			s.breaker.RestoreFailures(c.Owner.Lanes.Times(name, statefs.LaneFailures))
			s.savedFailures = s.breaker.CountedFailures()
		}
		s.published = applied{config: config.Lane}
		l.byName[name] = s
	}
	l.holds.Store(&map[statefs.LaneFile]statefs.LaneHold{})
	if err := l.open(); err != nil {
		return nil, err
	}
	l.restoreStarts()
	return l, nil
}

// Close releases what New opened. It is only for lanes whose Run is never called.
func (l *Lanes) Close() error { return l.dir.Close() }

// Reopened gets a value when a lane accepts submits again, or until when it does not has changed.
func (l *Lanes) Reopened() <-chan struct{} { return l.reopened }

// TrialChanged is called when a lane has admitted its trial operation, and when an operation that holds a
// place in the lane is about to release it. It never blocks.
func (l *Lanes) TrialChanged(name string) {
	if s := l.byName[name]; s != nil && s.breaker != nil {
		l.reconcileSoon()
	}
}

func filesOf(name string) []statefs.LaneFile {
	return []statefs.LaneFile{
		{Lane: name, Control: statefs.LanePaused},
		{Lane: name, Control: statefs.LaneClosed},
		{Lane: name, Control: statefs.LaneCapacity},
	}
}

// ReconcileSoon requests a reconcile, and compares all times with the clock, which may have been set.
func (l *Lanes) ReconcileSoon() {
	l.alarms.Rearm()
	l.reconcileSoon()
}

func (l *Lanes) reconcileSoon() { notify.Wake(l.wake) }

func (l *Lanes) open() (err error) {
	l.dir, err = watch.OpenDir(l.config.Owner.Lanes.Dir(), watchedFile, l.config.Watch)
	if err != nil {
		return fmt.Errorf("watch %s: %w", l.config.Owner.Lanes.Dir(), err)
	}
	return nil
}

// Run reconciles on every change until ctx ends. If the folder is removed, Run watches it again
// once it exists. When it returns, everything that New opened is released, even if ctx had ended before.
func (l *Lanes) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, l.dir.Close()) }()
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { l.alarms.Run(ctx, l.config.Logger) })
	for ctx.Err() == nil {
		err := l.dir.RunWith(ctx, l.reconcileOnChange)
		gone, is := errors.AsType[*watch.GoneError](err)
		if !is {
			return err
		}
		l.config.Logger.Warn("lanes/ is not there; files count again when it is watched again", "reason", gone.Reason)
		if err := l.reopen(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reconcileOnChange reconciles until ctx ends or the folder is replaced.
func (l *Lanes) reconcileOnChange(ctx context.Context) error {
	for {
		select {
		case <-l.dir.Ready():
			l.dir.Take()
		case <-l.wake:
		case <-ctx.Done():
			return nil
		}
		if err := l.dir.Check(); err != nil {
			return err
		}
		l.Reconcile()
	}
}

// reopen watches the folder again once it exists. It tries on every reconcile request, and each
// sweep makes one.
func (l *Lanes) reopen(ctx context.Context) error {
	for {
		l.mu.Lock()
		err := l.open()
		l.mu.Unlock()
		if err == nil {
			l.Reconcile()
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return err
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// Reconcile reads the files and applies them. It may be called by any goroutine. Nothing that begins to start
// afterwards starts against the files.
func (l *Lanes) Reconcile() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.config.Owner.Now()
	for _, name := range slices.Sorted(maps.Keys(l.byName)) {
		s := l.byName[name]
		for _, f := range filesOf(name) {
			l.readFile(f, s.files[f.Control], now)
		}
		l.syncBreaker(s, now)
	}
	l.logStrayFiles()
	l.apply(now)
}

// Apply is Reconcile for a request that has just changed a file: when it returns, nothing starts that the files do not
// allow.
func (l *Lanes) Apply() {
	l.Reconcile()
	l.config.Queue.AwaitStarts()
}

// names returns the sorted names of the lanes.
func (l *Lanes) names() []string {
	names := slices.Sorted(maps.Keys(l.byName))
	return slices.DeleteFunc(names, func(name string) bool { return name == statefs.AllLanes })
}
