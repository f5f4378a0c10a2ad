package serve

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/statefs/notify"
	"github.com/jobdir/jobdir/statefs/watch"
)

// maxFolders bounds how many folders are watched, because each takes one of the user's inotify instances (128 by
// default). Jobs in further folders are read at start and when one of the watched folders changes.
const maxFolders = 32

// reloader reloads the job definitions when a job folder changes. Any number of changes during a reload cause
// one further reload.
type reloader struct {
	catalog      *catalog.Catalog
	log          *slog.Logger
	wake         chan struct{}
	lastReported string             // the problems that were reported last
	watched      map[string]*folder // owned by run, and by newReloader before
	warned       bool
	broken       map[string]bool // folders whose watch failed; another attempt would fail again
}

// folder is one watched folder.
type folder struct {
	dir  *watch.Dir[struct{}]
	stop context.CancelFunc // nil until start
	wait sync.WaitGroup
	err  error // of dir.Run; read after wait
}

// newReloader loads the definitions for the first time and reports their problems.
func newReloader(c *catalog.Catalog, dirs []string, log *slog.Logger) (*reloader, error) {
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, exit.Usagef("there is no folder of job definitions at %s: make it, or name another one with --jobs", dir)
		}
	}
	r := &reloader{
		catalog: c, log: log, wake: make(chan struct{}, 1), watched: map[string]*folder{},
		broken: map[string]bool{},
	}
	// Watch before the first load: changes in between cause another load.
	for _, dir := range dirs {
		r.add(filepath.Clean(dir))
	}
	r.read()
	return r, nil
}

// run watches until ctx ends.
func (r *reloader) run(ctx context.Context, again <-chan os.Signal) error {
	defer func() { _ = r.close() }() // started folders close themselves
	for _, f := range r.watched {
		f.start(ctx, r.nudge)
	}
	for {
		// A folder that was just found may have changed before it was watched, so its files are read once
		// more.
		for r.follow(ctx) {
			r.read()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
			r.settle(ctx)
		case <-again:
			r.lastReported = "" // a requested reload reports all problems again
			r.log.Info("job definitions are read again on request")
		}
		for _, f := range r.watched {
			f.dir.Take()
		}
		r.read()
	}
}

// A file that is written in place is empty for a moment, and half of it may be a valid definition.
const (
	settleQuiet = 100 * time.Millisecond // without a change
	settleLimit = time.Second            // changes that do not stop are read anyway
)

// settle waits until the writer has finished.
func (r *reloader) settle(ctx context.Context) {
	enough := time.After(settleLimit)
	for {
		select {
		case <-r.wake:
		case <-time.After(settleQuiet):
			return
		case <-enough:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (r *reloader) read() {
	// Reload's error is the same as Problems. Problems are reported one by one and once, because a folder
	// without events is read every second.
	err := r.catalog.Reload()
	if err == nil {
		r.lastReported = ""
		return
	}
	if err.Error() == r.lastReported {
		return
	}
	r.lastReported = err.Error()
	for _, p := range r.catalog.Problems() {
		r.log.Warn("job definition not used", "problem", p.Error())
	}
}

// follow watches the folders that the catalog has read, drops the others, and reports whether a watch is new.
func (r *reloader) follow(ctx context.Context) (added bool) {
	folders := r.catalog.Folders()
	for path, f := range r.watched {
		gone := f.dir.Check()
		if slices.Contains(folders, path) && gone == nil {
			continue
		}
		r.log.Debug("job folder is no longer watched", "folder", path, "reason", gone)
		_ = r.drop(path) // it was started, so there is nothing to close
	}
	for _, path := range folders {
		if r.watched[path] != nil || r.broken[path] {
			continue
		}
		if len(r.watched) == maxFolders {
			if !r.warned {
				r.log.Warn("too many job folders: changes in some are noticed with those in others, or on SIGHUP", "folders",
					len(folders), "watched", maxFolders)
			}
			r.warned = true
			break
		}
		if f := r.add(path); f != nil {
			f.start(ctx, r.nudge)
			added = true
		}
	}
	return added
}

// concernsJobs selects the names that cause a reload: definitions, and names that may be a folder. Other
// changes, such as writes to a log, do not. A new folder with a dot in its name is found at the next change.
func concernsJobs(name string) (struct{}, bool) {
	ending := filepath.Ext(name)
	return struct{}{}, ending == ".yaml" || ending == ".yml" || ending == "" && !strings.HasPrefix(name, ".")
}

// add watches one more folder. It returns nil if that is not possible or the folder is watched already.
func (r *reloader) add(path string) *folder {
	if r.watched[path] != nil {
		return nil
	}
	dir, err := watch.OpenDir(path, concernsJobs, watch.Options{})
	if err != nil {
		r.log.Warn("job folder is not watched", "folder", path, "error", err)
		return nil
	}
	if mode := dir.Mode(); mode.Name != watch.ModeInotify {
		r.log.Warn("job folder is read again each second", "folder", path, "reason", mode.Reason)
	}
	r.watched[path] = &folder{dir: dir}
	return r.watched[path]
}

// start calls nudge for every change and at the end of the watch, until the folder is dropped.
func (f *folder) start(ctx context.Context, nudge func()) {
	ctx, f.stop = context.WithCancel(ctx)
	f.wait.Go(func() {
		defer f.stop()
		f.err = f.dir.RunWith(ctx, func(watching context.Context) error {
			defer nudge()
			for {
				select {
				case <-watching.Done():
					return nil
				case <-f.dir.Ready():
					nudge()
				}
			}
		})
	})
}

func (r *reloader) nudge() { notify.Wake(r.wake) }

func (r *reloader) drop(path string) error {
	f := r.watched[path]
	delete(r.watched, path)
	if f.stop == nil {
		return f.dir.Close()
	}
	f.stop()
	f.wait.Wait()
	if f.err != nil {
		r.broken[path] = true
		r.log.Warn("watch of a job folder ended: its changes are read on SIGHUP only", "folder", path, "error", f.err)
	}
	return nil
}

func (r *reloader) close() error {
	var err error
	for path := range r.watched {
		err = errors.Join(err, r.drop(path))
	}
	return err
}
