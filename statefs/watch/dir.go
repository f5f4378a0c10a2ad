package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// Dir watches one folder without its subfolders. Any change of a name (created, renamed from or to,
// linked, removed, written, touched) adds its key to a set until Take empties it.
//
// All methods may be called by any goroutine at any time; Run only by one.
type Dir[K comparable] struct {
	source
	*pending[K]
	path string // absolute
	key  func(name string) (K, bool)
	// Gone, unless it is nil, changes the key of a name that left the folder: it was removed or renamed. If it
	// came again, an event with the unchanged key follows. Set it before Run.
	Gone func(K) K

	opened fs.FileInfo // of root

	unknown atomic.Uint64
}

// OpenDir watches the folder dir, which must exist. The watch is in place when
// it returns: list the folder after it, then call Run.
//
// key returns the key of an entry's name (raw bytes, no slash), or false for an unknown name, which
// is only counted. OpenDir and Run call it on their goroutine for every event; it must neither
// block nor access files. Names that begin with ProbePrefix never reach it.
//
// If events are unavailable or unreliable, OpenDir does not fail: see Mode. It fails if the folder
// cannot be opened (a *fs.PathError) or is replaced at that moment (*GoneError). The caller must
// let Run return or call Close.
func OpenDir[K comparable](dir string, key func(name string) (K, bool), o Options) (*Dir[K], error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("watch folder %s: %w", dir, err)
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() { // opening a fifo would block
		return nil, fmt.Errorf("watch folder %s: %w", path, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR})
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("watch folder %s: %w", path, err)
	}
	opened, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch folder %s: %w", path, err), root.Close())
	}
	set := &pending[K]{ready: make(chan struct{}, 1), keys: make(map[K]struct{})}
	d := &Dir[K]{path: path, key: key, pending: set, opened: opened}
	d.root = root
	d.open("watch folder "+path, o, d.requestRescan)
	if d.watcher != nil {
		d.mode = d.start()
	}
	if d.mode.Name == ModeScan {
		d.ticker.Reset(d.options.ScanInterval)
	}
	if err := d.Check(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// start adds the watch and determines whether it is reliable.
func (d *Dir[K]) start() Mode {
	if err := d.watcher.Add(d.path); err != nil {
		err = errors.Join(err, closeWatcher(d.watcher))
		d.watcher = nil
		return Mode{ModeScan, explain("watch", err, syscall.ENOSPC, "fs.inotify.max_user_watches")}
	}
	if kind := remoteKind(d.path); kind != "" {
		return Mode{ModeScan, kind + ": changes made elsewhere send no events"}
	}
	seen, err := d.probe()
	switch {
	case err != nil:
		return Mode{ModeInotify, fmt.Sprintf("not verified, as no probe file could be made: %v", err)}
	case !seen:
		return Mode{ModeScan, fmt.Sprintf("the probe file sent no event within %v", d.options.ProbeTimeout)}
	}
	return Mode{Name: ModeInotify}
}

// Run reads events until ctx is done, and then returns nil. It returns an error if the watcher
// fails permanently; later changes are not noticed, so treat that as fatal. When it returns,
// everything the Dir held is released.
func (d *Dir[K]) Run(ctx context.Context) error {
	return d.run(ctx, func(event fsnotify.Event) { d.receive(event) }, d.requestRescan)
}

// RunWith is Run together with handle: each ends when the other does. The context of handle is done when the watch has
// ended.
func (d *Dir[K]) RunWith(ctx context.Context, handle func(context.Context) error) error {
	watching, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		defer stop()
		ended <- d.Run(watching)
	}()
	err := handle(watching)
	stop()
	return errors.Join(err, <-ended)
}

// receive adds the key of the event's name to the set and returns the name.
func (d *Dir[K]) receive(event fsnotify.Event) string {
	if event.Name == d.path {
		d.events.Add(1)
		if event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename) {
			d.requestRescan()
		}
		return ""
	}
	name := event.Name[strings.LastIndexByte(event.Name, '/')+1:]
	if strings.HasPrefix(name, ProbePrefix) {
		return name
	}
	d.events.Add(1)
	key, ok := d.key(name)
	switch {
	case !ok:
		d.unknown.Add(1)
	case d.Gone != nil && (event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename)):
		d.add(d.Gone(key))
	default:
		d.add(key)
	}
	return name
}

// Mode returns how changes are noticed. OpenDir determines it, and it does not change.
func (d *Dir[K]) Mode() Mode { return d.mode }

// Stats returns the counters since OpenDir.
func (d *Dir[K]) Stats() Stats {
	return Stats{
		Events: d.events.Load(), Unknown: d.unknown.Load(), Overflows: d.overflows.Load(),
		Errors: d.failures.Load(), Rescans: d.rescans.Load(),
	}
}
