package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// eventBuffer is the capacity of the event channel. It saves a goroutine switch per event of a
	// burst and costs 40 bytes per slot.
	eventBuffer = 4096
	// maxFaults is how many errors other than overflows may follow each other without an event in
	// between. A single one is harmless (renaming and removing a watched file at once causes one);
	// an endless series means that the instance can no longer be read.
	maxFaults = 32
)

var errStopped = errors.New("the watcher was closed while it was in use")

// source is the inotify instance of a Dir or a Files, and the ticker for what sends no events.
type source struct {
	name    string // what it does, for errors
	options Options
	mode    Mode
	watcher *fsnotify.Watcher // nil if none is available
	ticker  *time.Ticker      // stopped until something needs it
	lost    func()            // is called when events were lost
	root    *os.Root          // of a Dir: holds the folder, so that its inode is not reused

	events, overflows, failures atomic.Uint64

	running   atomic.Bool
	closed    atomic.Bool
	closeOnce sync.Once
	closeErr  error
}

// open creates the instance. Without one, the mode is "scan".
func (s *source) open(name string, o Options, lost func()) {
	s.name, s.options, s.lost, s.mode = name, o.withDefaults(), lost, Mode{Name: ModeInotify}
	s.ticker = time.NewTicker(s.options.ScanInterval)
	s.ticker.Stop()
	watcher, err := fsnotify.NewBufferedWatcher(eventBuffer)
	if err != nil {
		s.mode = Mode{ModeScan, explain("instance", err, syscall.EMFILE,
			"fs.inotify.max_user_instances or the limit of open files")}
		return
	}
	s.watcher = watcher
}

// run calls receive for each event and tick for each tick, until ctx is done, and then returns nil. It returns an
// error if the watcher fails permanently. It calls Close before it returns.
func (s *source) run(ctx context.Context, receive func(fsnotify.Event), tick func()) (err error) {
	if !s.running.CompareAndSwap(false, true) {
		return fmt.Errorf("%s: already running", s.name)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var (
		events <-chan fsnotify.Event
		faults <-chan error
	)
	if s.watcher != nil {
		events, faults = s.watcher.Events, s.watcher.Errors
	}
	inARow := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.ticker.C:
			tick()
		case event, ok := <-events:
			if !ok {
				return fmt.Errorf("%s: %w", s.name, errStopped)
			}
			inARow = 0
			receive(event)
		case fault, ok := <-faults:
			if !ok {
				return fmt.Errorf("%s: %w", s.name, errStopped)
			}
			if inARow++; s.recordError(fault) && inARow >= maxFaults {
				return fmt.Errorf("%s: %d errors in a row: %w", s.name, inARow, fault)
			}
		}
	}
}

// recordError counts an error of the watcher and reports whether it is unexpected. An overflow may happen at any time.
// Either way, any event may have been lost.
func (s *source) recordError(err error) (unexpected bool) {
	unexpected = !errors.Is(err, fsnotify.ErrEventOverflow)
	if unexpected {
		s.failures.Add(1)
	} else {
		s.overflows.Add(1)
	}
	s.lost()
	return unexpected
}

// Close releases everything of a Dir or a Files whose Run was never called; Run calls it itself. It may be called more
// than once. During Run it makes Run return an error: cancel the context of Run instead. Subscriptions end silently.
func (s *source) Close() error {
	s.closeOnce.Do(func() {
		s.closed.Store(true)
		s.ticker.Stop()
		if s.watcher != nil {
			s.closeErr = closeWatcher(s.watcher)
		}
		if s.root != nil {
			s.closeErr = errors.Join(s.closeErr, s.root.Close())
		}
	})
	return s.closeErr
}

// closeWatcher closes w and waits for its goroutine. It drains the errors while it waits: fsnotify
// sends some of them with its lock held, Close needs that lock, and the channel has no buffer.
//
// It removes the watches first. The goroutine of fsnotify removes the watch of a moved folder by
// descriptor number; after Close that number may belong to another inotify instance of this
// process, which would lose a watch.
func closeWatcher(w *fsnotify.Watcher) error {
	closed := make(chan error, 1)
	go func() {
		for _, path := range w.WatchList() {
			_ = w.Remove(path) // it may be gone already
		}
		closed <- w.Close()
	}()
	for range w.Errors {
	}
	return <-closed
}

// explain returns why there is no inotify instance or watch, and which limit to raise if that is the cause; see
// inotify_init(2) and inotify_add_watch(2).
func explain(what string, err error, atLimit syscall.Errno, limit string) string {
	text := fmt.Sprintf("no inotify %s (%v)", what, err)
	if errors.Is(err, atLimit) {
		text += ": raise " + limit
	}
	return text
}
