package watch

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

const (
	// eventBuffer is the capacity of the event channel. It saves a change of
	// goroutine for each event of a burst and costs 40 bytes a slot.
	eventBuffer = 4096
	// maxFaults is how many errors other than overflow may follow each other
	// without an event between them. A single one is harmless (a watched file
	// renamed and removed at once gives one); an endless row means that the
	// instance cannot be read any more.
	maxFaults = 32
)

var errStopped = errors.New("the watcher was closed while it was in use")

// closeWatcher closes w and waits for its goroutine. It reads the errors
// meanwhile: fsnotify sends some of them with its lock held, Close needs that
// lock, and the channel has no buffer.
//
// The watches go first. The goroutine of fsnotify removes the watch of a folder
// that was moved by the number of its descriptor; after Close that may be the
// number of another inotify instance of this process, which then loses a watch.
func closeWatcher(w *fsnotify.Watcher) error {
	closed := make(chan error, 1)
	go func() {
		for _, path := range w.WatchList() {
			_ = w.Remove(path) // it may have gone by itself
		}
		closed <- w.Close()
	}()
	for range w.Errors {
	}
	return <-closed
}

// noInstance says why there is no inotify instance, see inotify_init(2).
func noInstance(err error) string {
	if errors.Is(err, syscall.EMFILE) {
		return fmt.Sprintf("no inotify instance (%v): raise fs.inotify.max_user_instances or the limit of open files", err)
	}
	return fmt.Sprintf("no inotify instance (%v)", err)
}

// noWatch says why a path cannot be watched, see inotify_add_watch(2).
func noWatch(err error) string {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Sprintf("no inotify watch (%v): raise fs.inotify.max_user_watches", err)
	}
	return fmt.Sprintf("no inotify watch (%v)", err)
}
