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
	"time"

	"github.com/jobdir/jobdir/breaker"
	"github.com/jobdir/jobdir/events"
	"github.com/jobdir/jobdir/queue"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

// lanes bring the queue in line with what the files of lanes/ say of each lane, and with its breaker.
//
//	lanes/cookie.paused ──"look now"──▶ look ──compare──▶ admission.setLane, an event, a line of the log
//	a run has ended ───────▶ ended ──breaker──▶ lanes/cookie.paused, by: breaker
//	an until has come ─────▶ alarm ──▶ look ──▶ the file is removed
//
// The files are the authority. A look reads all of them: there are few, and they change seldom.
type lanes struct {
	owner     *statefs.Owner
	admission *admission
	events    *events.Log
	logger    *slog.Logger
	options   watch.Options
	alarms    *alarms[statefs.LaneFile]
	ran       func() time.Duration // how long the daemon has run
	wake      chan struct{}        // a look is wanted

	mu  sync.Mutex // guards what follows, and is held while a look reads and writes files; taken before that of admission
	dir *watch.Dir[statefs.LaneFile]
	all map[string]*lane
	odd []statefs.LaneProblem // files that control nothing
	// looked says that there was a look: what differs from it is news.
	looked bool

	// closed are the lanes that take nothing, for submits, which must not wait for a look.
	closed atomic.Pointer[map[string]statefs.LaneHold]
	// paused are the lanes that start nothing, for those who ask why something waits.
	paused atomic.Pointer[map[string]statefs.LaneHold]
	// reopened has one value when a lane takes submits again, or is closed in another way, for those that wait.
	reopened chan struct{}

	turns  turns
	starts *starts
}

// lane is one lane, or AllLanes, as its files say.
type lane struct {
	name    string
	config  LaneConfig
	files   map[statefs.LaneControl]*laneFile
	breaker *breaker.Breaker // nil: it has none
	// written says that the pause of the breaker is on the disk, so that a person who removes it resumes the lane.
	written bool
	// noted are the failures below the threshold that are on the disk.
	noted []time.Time
	// said is how the lane was when everybody was told last.
	said laneSays
}

func newLanes(c *Config, a *admission, ran func() time.Duration) *lanes {
	l := &lanes{
		owner: c.Owner, admission: a, events: c.Events, logger: c.Logger, options: c.Watch, ran: ran,
		wake: make(chan struct{}, 1), all: make(map[string]*lane),
	}
	l.alarms = newAlarms(c.Owner.Now, ran, func(statefs.LaneFile) { l.want() })
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
			s.breaker.Recall(c.Owner.LaneTimes(name, statefs.LaneFailures))
			s.noted = s.breaker.Counted()
		}
		s.said = laneSays{set: config.Lane, capacity: config.Capacity}
		l.all[name] = s
	}
	l.closed.Store(&map[string]statefs.LaneHold{})
	l.paused.Store(&map[string]statefs.LaneHold{})
	l.reopened = make(chan struct{}, 1)
	l.turns, l.starts = newTurns(c, l.logger), newStarts(c, l.logger)
	l.starts.recall(a)
	a.trial = func(name string) {
		if s := l.all[name]; s != nil && s.breaker != nil {
			l.want()
		}
	}
	return l
}

func laneFilesOf(name string) []statefs.LaneFile {
	return []statefs.LaneFile{{Lane: name, Control: statefs.LanePaused}, {Lane: name, Control: statefs.LaneClosed}, {Lane: name, Control: statefs.LaneCapacity}}
}

// want has a look made soon.
func (l *lanes) want() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// open begins to watch. Look after it.
func (l *lanes) open() (err error) {
	l.dir, err = watch.OpenDir(l.owner.LanesDir(), watchedLaneFile, l.options)
	if err != nil {
		return fmt.Errorf("watch %s: %w", l.owner.LanesDir(), err)
	}
	return nil
}

// run looks whenever there is something to see, until ctx ends. A folder that was removed is watched again when it is there again.
func (l *lanes) run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { keepAlarms(ctx, l.alarms, l.logger) })
	for ctx.Err() == nil {
		watching, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- l.dir.Run(watching) }()
		err := l.follow(ctx, ended)
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

// follow looks until ctx ends, the watch ends, or the folder is another one.
func (l *lanes) follow(ctx context.Context, ended chan error) error {
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
		l.look()
	}
}

// reopen watches the folder of that name, as soon as there is one: each wish for a look tries, and every sweep has one.
func (l *lanes) reopen(ctx context.Context) error {
	for {
		l.mu.Lock()
		err := l.open()
		l.mu.Unlock()
		if err == nil {
			l.look()
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// look reads the files and brings everything in line with them. It may be called by any goroutine.
func (l *lanes) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.owner.Now()
	for _, name := range slices.Sorted(maps.Keys(l.all)) {
		s := l.all[name]
		for _, f := range laneFilesOf(name) {
			l.read(f, s.files[f.Control], now)
		}
		l.heed(s, now)
	}
	l.findOdd()
	l.apply(now)
}

// names are the lanes in order.
func (l *lanes) names() []string {
	var names []string
	for name := range l.all {
		if name != statefs.AllLanes {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
