package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Files wakes subscribers when single files, such as logs, are written. All files share one inotify
// instance; all subscribers of a file share one watch. The cost, measured on Linux amd64: 60 bytes
// of heap per further subscriber of a path, and 300 per further path, which also takes one of the
// user's inotify watches (fs.inotify.max_user_watches).
//
// All methods may be called by any goroutine at any time; Run only by one.
type Files struct {
	options Options
	mode    Mode
	watcher *fsnotify.Watcher // nil if none is available
	polls   chan struct{}     // cap 1: the number of polled files became, or ceased to be, 0

	// changing serialises all changes of watches with the table. Run never takes it: fsnotify can
	// hold its own lock while it waits for Run.
	changing sync.Mutex

	mu          sync.Mutex // never held while the watcher is called
	closed      bool
	paths       map[string]*watchedFile
	folders     map[string]folder
	polled      int
	subscribers int

	events, overflows, failures atomic.Uint64

	running   atomic.Bool
	closeOnce sync.Once
	closeErr  error
}

// watchedFile is one file; its fields are guarded by Files.mu.
type watchedFile struct {
	path        string
	subscribers []*subscription
	polled      bool // woken by the ticker, not by events
}

// OpenFiles creates the inotify instance. If none is available, it does not fail: see Mode. The
// caller must let Run return or call Close.
func OpenFiles(o Options) (*Files, error) {
	f := &Files{
		options: o.withDefaults(),
		mode:    Mode{Name: ModeInotify},
		polls:   make(chan struct{}, 1),
		paths:   make(map[string]*watchedFile),
		folders: make(map[string]folder),
	}
	watcher, err := fsnotify.NewBufferedWatcher(eventBuffer)
	if err != nil {
		f.mode = Mode{ModeScan, explainNoInstance(err)}
		return f, nil
	}
	f.watcher = watcher
	return f, nil
}

// Run wakes subscribers until ctx is done, and then returns nil. It returns an error if the watcher
// fails permanently; no subscriber is woken from then on. When it returns, everything the Files
// held is released.
func (f *Files) Run(ctx context.Context) (err error) {
	if !f.running.CompareAndSwap(false, true) {
		return errors.New("follow files: already running")
	}
	defer func() { err = errors.Join(err, f.Close()) }()

	var (
		events <-chan fsnotify.Event
		faults <-chan error
		ticker = new(time.Ticker) // its nil channel is never ready
	)
	if f.watcher != nil {
		events, faults = f.watcher.Events, f.watcher.Errors
	}
	defer func() { stopTicker(ticker) }()
	inARow := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.polls:
			stopTicker(ticker)
			ticker = f.pollTicker()
		case <-ticker.C:
			f.wakePolled()
		case event, ok := <-events:
			if !ok {
				return fmt.Errorf("follow files: %w", errStopped)
			}
			inARow = 0
			f.events.Add(1)
			f.wakePath(event.Name)
		case fault, ok := <-faults:
			if !ok {
				return fmt.Errorf("follow files: %w", errStopped)
			}
			if inARow++; f.recordError(fault) && inARow >= maxFaults {
				return fmt.Errorf("follow files: %d errors in a row: %w", inARow, fault)
			}
		}
	}
}

// pollTicker returns a running ticker only while a file needs polling.
func (f *Files) pollTicker() *time.Ticker {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.polled == 0 {
		return new(time.Ticker)
	}
	return time.NewTicker(f.options.ScanInterval)
}

func stopTicker(t *time.Ticker) {
	if t.C != nil {
		t.Stop()
	}
}

// recordError counts an error of the watcher and wakes all subscribers, because any event may have
// been lost. It reports whether the error is unexpected.
func (f *Files) recordError(err error) (unexpected bool) {
	unexpected = !errors.Is(err, fsnotify.ErrEventOverflow)
	if unexpected {
		f.failures.Add(1)
	} else {
		f.overflows.Add(1)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, file := range f.paths {
		file.wakeLocked()
	}
	return unexpected
}

func (f *Files) wakePath(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if file, ok := f.paths[path]; ok {
		file.wakeLocked()
	}
}

func (f *Files) wakePolled() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, file := range f.paths {
		if file.polled {
			file.wakeLocked()
		}
	}
}

func (file *watchedFile) wakeLocked() {
	for _, s := range file.subscribers {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// Mode returns how changes are noticed in general. A single file can be polled although the mode is
// "inotify": see Subscribe and FilesStats.Polled.
func (f *Files) Mode() Mode { return f.mode }

// Stats returns what is held now, and the counters since OpenFiles.
func (f *Files) Stats() FilesStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return FilesStats{
		Paths: len(f.paths), Subscribers: f.subscribers, Polled: f.polled,
		Events: f.events.Load(), Overflows: f.overflows.Load(), Errors: f.failures.Load(),
	}
}

// Close releases the instance of a Files whose Run was never called; Run calls
// it itself. It may be called more than once. Subscriptions end silently.
func (f *Files) Close() error {
	f.closeOnce.Do(func() {
		f.mu.Lock()
		f.closed = true
		f.mu.Unlock()
		if f.watcher != nil {
			f.closeErr = closeWatcher(f.watcher)
		}
	})
	return f.closeErr
}

// errFilesClosed wraps fs.ErrClosed.
var errFilesClosed = fmt.Errorf("the watcher of files has ended: %w", fs.ErrClosed)
