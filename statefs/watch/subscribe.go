package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// subscription is one subscriber of one file; guarded by Files.mu.
type subscription struct {
	wake  chan<- struct{}
	file  *watchedFile
	index int // in file.subscribers; -1 once cancelled
}

// Subscribe sends on wake, without blocking, whenever the regular file path may have changed:
// written, truncated, touched, removed, or after events were lost. wake needs a capacity of at
// least 1 and may be shared; it may be signalled without a change. Subscribe first, then read:
// every write after Subscribe returns is signalled. cancel ends the subscription, may be called
// more than once, and leaves at most one value in wake.
//
// If events do not work (no instance, no watch left, a network or FUSE file system, a file with
// several names, because fsnotify reports only one of them), the subscribers of that file are woken every
// Options.ScanInterval instead. Use the same spelling of a file's folder each time, or symbolic
// links: of two spellings through a bind mount, the second is not recognised as the same file and
// gets no signal.
//
// When the file is removed or renamed, its subscribers are woken and then get no further signals
// for that path, until a Subscribe finds a new file there and watches it for all of them. A removed
// file that a program still writes keeps causing signals.
//
// It fails with fs.ErrNotExist if there is no such file, and with fs.ErrClosed after Run or Close.
func (f *Files) Subscribe(path string, wake chan<- struct{}) (cancel func(), err error) {
	if cap(wake) == 0 {
		return nil, fmt.Errorf("follow file %s: the wake channel needs a capacity of at least 1", path)
	}
	path, polled, err := f.resolve(path)
	if err != nil {
		return nil, err
	}
	f.changing.Lock()
	defer f.changing.Unlock()
	s, err := f.insert(path, wake)
	if err != nil {
		return nil, err
	}
	if !polled {
		// Always, not only for the first subscriber: the file may have been replaced, and adding an
		// existing watch again does nothing.
		err = f.watcher.Add(path)
	}
	switch {
	case polled:
		f.poll(s.file)
	case errors.Is(err, fs.ErrNotExist):
		f.removeLocked(s)
		return nil, fmt.Errorf("follow file %s: %w", path, err)
	case errors.Is(err, fsnotify.ErrClosed):
		f.removeLocked(s)
		return nil, fmt.Errorf("follow file %s: %w", path, errFilesClosed)
	case err != nil:
		f.poll(s.file)
	}
	return func() {
		f.changing.Lock()
		defer f.changing.Unlock()
		f.removeLocked(s)
	}, nil
}

// resolve returns the spelling of path that events use, and whether events are unreliable for this
// file.
func (f *Files) resolve(path string) (resolved string, polled bool, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return "", false, fmt.Errorf("follow file: %w", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return "", false, fmt.Errorf("follow file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", false, fmt.Errorf("follow file %s: not a regular file (%s)", path, info.Mode().Type())
	}
	// Without symbolic links, so that two spellings of a file share one watch.
	dir, err := f.spell(filepath.Dir(path))
	if err != nil {
		return "", false, fmt.Errorf("follow file %s: %w", path, err)
	}
	resolved = filepath.Join(dir, filepath.Base(path))
	if resolved != path {
		if at, err := os.Lstat(resolved); err != nil || !os.SameFile(at, info) { // a folder was renamed since
			f.mu.Lock()
			clear(f.folders)
			f.mu.Unlock()
			if dir, err = f.spell(filepath.Dir(path)); err != nil {
				return "", false, fmt.Errorf("follow file %s: %w", path, err)
			}
			resolved = filepath.Join(dir, filepath.Base(path))
		}
	}
	return resolved, f.watcher == nil || remoteKind(dir) != "" || linkCount(info) > 1, nil
}

// maxFolders is how many spellings of folders are kept; most files are in the folder of the day, or one below it.
const maxFolders = 8

// spell returns an absolute path of a folder without symbolic links. It remembers the answer, and
// uses that of the folder above: filepath.EvalSymlinks asks about every part of the path.
func (f *Files) spell(dir string) (spelled string, err error) {
	f.mu.Lock()
	spelled, known := f.folders[dir]
	parent, parentKnown := f.folders[filepath.Dir(dir)]
	f.mu.Unlock()
	if known {
		return spelled, nil
	}
	if parentKnown {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			return filepath.Join(parent, filepath.Base(dir)), nil
		}
	}
	if spelled, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.folders) >= maxFolders {
		clear(f.folders)
	}
	f.folders[dir] = spelled
	return spelled, nil
}

func (f *Files) insert(path string, wake chan<- struct{}) (*subscription, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed.Load() {
		return nil, fmt.Errorf("follow file %s: %w", path, errFilesClosed)
	}
	file, ok := f.paths[path]
	if !ok {
		file = &watchedFile{path: path}
		f.paths[path] = file
	}
	s := &subscription{wake: wake, file: file, index: len(file.subscribers)}
	file.subscribers = append(file.subscribers, s)
	return s, nil
}

func (f *Files) poll(file *watchedFile) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if file.polled {
		return
	}
	file.polled = true
	if f.polled++; f.polled == 1 {
		f.ticker.Reset(f.options.ScanInterval)
	}
}

// removeLocked removes s, and the watch with the last subscriber. The caller holds f.changing, so
// that no Subscribe adds the watch in between.
func (f *Files) removeLocked(s *subscription) {
	if last := f.forget(s); !last || f.watcher == nil {
		return
	}
	// The watch may have disappeared with the file already, which is the usual error.
	_ = f.watcher.Remove(s.file.path)
}

// forget removes s from the table and reports whether it was the file's last subscription.
func (f *Files) forget(s *subscription) (last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.index < 0 {
		return false
	}
	file := s.file
	end := len(file.subscribers) - 1
	moved := file.subscribers[end]
	file.subscribers[s.index], moved.index = moved, s.index
	file.subscribers = slices.Delete(file.subscribers, end, end+1)
	s.index = -1
	if end > 0 {
		return false
	}
	delete(f.paths, file.path)
	if file.polled {
		if f.polled--; f.polled == 0 {
			f.ticker.Stop()
		}
	}
	return true
}
