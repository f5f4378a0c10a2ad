package watch

import (
	"errors"
	"fmt"
	"syscall"

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

// explainNoInstance returns why there is no inotify instance, see inotify_init(2).
func explainNoInstance(err error) string {
	if errors.Is(err, syscall.EMFILE) {
		return fmt.Sprintf("no inotify instance (%v): raise fs.inotify.max_user_instances or the limit of open files", err)
	}
	return fmt.Sprintf("no inotify instance (%v)", err)
}

// explainNoWatch returns why a path cannot be watched, see inotify_add_watch(2).
func explainNoWatch(err error) string {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Sprintf("no inotify watch (%v): raise fs.inotify.max_user_watches", err)
	}
	return fmt.Sprintf("no inotify watch (%v)", err)
}
