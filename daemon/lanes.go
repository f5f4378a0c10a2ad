package daemon

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
	"github.com/jobdir/jobdir/statefs/watch"
)

// lanes applies the files of lanes/ and the breakers to the queue.
//
//	lanes/cookie.paused ──event──▶ reconcile ──compare──▶ admission.setLanes, an event, a log line
//	a run has ended ─────────────▶ runEnded ──breaker──▶ lanes/cookie.paused, by: breaker
//	an until has come ───alarm───▶ reconcile ──▶ the file is removed
//
// The files are the authority. A reconcile reads all of them: they are few and change seldom.
type lanes struct {
	owner     *statefs.Owner
	admission *admission
	events    *events.Log
	logger    *slog.Logger
	options   watch.Options
	alarms    *alarm.Alarms[statefs.LaneFile]
	uptime    func() time.Duration // how long the daemon has run
	wake      chan struct{}        // requests a reconcile

	// mu guards the fields below. It is held while a reconcile reads and writes files, and is
	// locked before the mutex of admission.
	mu         sync.Mutex
	dir        *watch.Dir[statefs.LaneFile]
	byName     map[string]*lane
	strayFiles []statefs.LaneProblem // files that control nothing
	// reconciled is set by the first reconcile. Only changes after it are published.
	reconciled bool

	// closed holds the closed lanes. Submits read it without waiting for a reconcile.
	closed atomic.Pointer[map[string]statefs.LaneHold]
	// paused holds the paused lanes, to explain why an operation waits.
	paused atomic.Pointer[map[string]statefs.LaneHold]
	// reopened wakes submissions that wait. It gets a value when a lane accepts submits again or
	// its close changes.
	reopened chan struct{}

	rotation     envRotation
	startHistory *startHistory
}

// lane is the state of one lane, or of AllLanes.
type lane struct {
	name    string
	config  LaneConfig
	files   map[statefs.LaneControl]*laneFile
	breaker *breaker.Breaker // nil if the lane has none
	// pauseWritten means that the breaker's pause is on disk, so that removing it resumes the lane.
	pauseWritten bool
	// savedFailures are the failures below the threshold that are on disk.
	savedFailures []time.Time
	// published is the state that was published last.
	published laneState
}

func newLanes(c *Config, a *admission, ran func() time.Duration) *lanes {
	l := &lanes{
		owner: c.Owner, admission: a, events: c.Events, logger: c.Logger, options: c.Watch, uptime: ran,
		wake: make(chan struct{}, 1), byName: make(map[string]*lane),
	}
	l.alarms = alarm.New(c.Owner.Now, ran, func(statefs.LaneFile) { l.reconcileSoon() })
	configs := maps.Clone(c.Lanes)
	if configs == nil {
		configs = make(map[string]LaneConfig)
	}
	if _, ok := configs[DefaultLane]; !ok {
		configs[DefaultLane] = LaneConfig{Lane: queue.Lane{Capacity: queue.Unlimited}}
	}
	configs[statefs.AllLanes] = LaneConfig{}
	for name, config := range configs {
		s := &lane{name: name, config: config, files: make(map[statefs.LaneControl]*laneFile)}
		for _, f := range laneFilesOf(name) {
			s.files[f.Control] = &laneFile{}
		}
		if config.Breaker != nil {
			s.breaker = breaker.New(*config.Breaker)
			s.breaker.RestoreFailures(c.Owner.LaneTimes(name, statefs.LaneFailures))
			s.savedFailures = s.breaker.CountedFailures()
		}
		s.published = laneState{config: config.Lane, capacity: config.Capacity}
		l.byName[name] = s
	}
	l.closed.Store(&map[string]statefs.LaneHold{})
	l.paused.Store(&map[string]statefs.LaneHold{})
	l.reopened = make(chan struct{}, 1)
	l.rotation, l.startHistory = newEnvRotation(c, l.logger), newStartHistory(c, l.logger)
	l.startHistory.restore(a)
	a.onTrial = func(name string) {
		if s := l.byName[name]; s != nil && s.breaker != nil {
			l.reconcileSoon()
		}
	}
	return l
}

func laneFilesOf(name string) []statefs.LaneFile {
	return []statefs.LaneFile{
		{Lane: name, Control: statefs.LanePaused},
		{Lane: name, Control: statefs.LaneClosed},
		{Lane: name, Control: statefs.LaneCapacity},
	}
}

// reconcileSoon requests a reconcile.
func (l *lanes) reconcileSoon() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// open starts the watch. Reconcile after it.
func (l *lanes) open() (err error) {
	l.dir, err = watch.OpenDir(l.owner.LanesDir(), watchedLaneFile, l.options)
	if err != nil {
		return fmt.Errorf("watch %s: %w", l.owner.LanesDir(), err)
	}
	return nil
}

// run reconciles on every change until ctx ends. If the folder is removed, run watches it again
// once it exists.
func (l *lanes) run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { l.alarms.Run(ctx, l.logger) })
	for ctx.Err() == nil {
		watching, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- l.dir.Run(watching) }()
		err := l.reconcileOnChange(ctx, ended)
		stop()
		if _, gone := errors.AsType[*watch.GoneError](err); !gone {
			return errors.Join(err, <-ended)
		}
		if endErr := <-ended; endErr != nil {
			return endErr
		}
		l.logger.Warn("lanes/ was removed or replaced; files there count again when it is watched again", "error", err)
		if err := l.reopen(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reconcileOnChange reconciles until ctx ends, the watch ends, or the folder is replaced.
func (l *lanes) reconcileOnChange(ctx context.Context, ended chan error) error {
	for {
		select {
		case <-l.dir.Ready():
			l.dir.Take()
		case <-l.wake:
		case err := <-ended:
			ended <- nil
			if err == nil && ctx.Err() == nil {
				err = errors.New("it ended without a reason")
			}
			return err
		case <-ctx.Done():
			return nil
		}
		if err := l.dir.Check(); err != nil {
			return err
		}
		l.reconcile()
	}
}

// reopen watches the folder again once it exists. It tries on every reconcile request, and each
// sweep makes one.
func (l *lanes) reopen(ctx context.Context) error {
	for {
		l.mu.Lock()
		err := l.open()
		l.mu.Unlock()
		if err == nil {
			l.reconcile()
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

// reconcile reads the files and applies them. It may be called by any goroutine.
func (l *lanes) reconcile() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.owner.Now()
	for _, name := range slices.Sorted(maps.Keys(l.byName)) {
		s := l.byName[name]
		for _, f := range laneFilesOf(name) {
			l.readFile(f, s.files[f.Control], now)
		}
		l.syncBreaker(s, now)
	}
	l.logStrayFiles()
	l.apply(now)
}

// names returns the sorted names of the lanes.
func (l *lanes) names() []string {
	var names []string
	for name := range l.byName {
		if name != statefs.AllLanes {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
