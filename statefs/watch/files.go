package watch

import (
	"context"
	"fmt"
	"io/fs"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/jobdir/jobdir/statefs/notify"
)

// Files wakes subscribers when single files, such as logs, are written. All files share one inotify
// instance; all subscribers of a file share one watch. The cost, measured on Linux amd64: 60 bytes
// of heap per further subscriber of a path, and 300 per further path, which also takes one of the
// user's inotify watches (fs.inotify.max_user_watches).
//
// All methods may be called by any goroutine at any time; Run only by one.
type Files struct {
	source // its ticker runs while a file is polled

	// changing serialises all changes of watches with the table. Run never takes it: fsnotify can
	// hold its own lock while it waits for Run.
	changing sync.Mutex

	mu     sync.Mutex // never held while the watcher is called
	paths  map[string]*watchedFile
	polled int
	// folders are the spellings of folders without symbolic links, for a few folders; see spell.
	folders map[string]string
}

// watchedFile is one file; its fields are guarded by Files.mu.
type watchedFile struct {
	path        string
	subscribers []*subscription
	polled      bool // woken by the ticker, not by events
}

// OpenFiles creates the inotify instance. If none is available, every file is polled. The caller must
// let Run return or call Close.
func OpenFiles(o Options) *Files {
	f := &Files{paths: make(map[string]*watchedFile), folders: make(map[string]string)}
	f.open("follow files", o, func() { f.wakeAll(false) })
	return f
}

// Run wakes subscribers until ctx is done, and then returns nil. It returns an error if the watcher
// fails permanently; no subscriber is woken from then on. When it returns, everything the Files
// held is released.
func (f *Files) Run(ctx context.Context) error {
	return f.run(ctx, func(event fsnotify.Event) { f.wakePath(event.Name) }, func() { f.wakeAll(true) })
}

func (f *Files) wakePath(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if file, ok := f.paths[path]; ok {
		file.wakeLocked()
	}
}

// wakeAll wakes the subscribers of every file, or of the polled ones.
func (f *Files) wakeAll(onlyPolled bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, file := range f.paths {
		if file.polled || !onlyPolled {
			file.wakeLocked()
		}
	}
}

func (file *watchedFile) wakeLocked() {
	for _, s := range file.subscribers {
		notify.Wake(s.wake)
	}
}

// errFilesClosed wraps fs.ErrClosed.
var errFilesClosed = fmt.Errorf("the watcher of files has ended: %w", fs.ErrClosed)
