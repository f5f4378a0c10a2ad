package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func subscribe(tb testing.TB, f *Files, path string) (wake chan struct{}, cancel func()) {
	tb.Helper()
	wake = make(chan struct{}, 1)
	cancel, err := f.Subscribe(path, wake)
	must(tb, err)
	return wake, cancel
}

func newLog(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "a.log")
	write(tb, path, "")
	return path
}

func TestFilesWakesAllSubscribers(t *testing.T) {
	t.Parallel()
	f := openFiles(t, Options{})
	start(t, f)
	path, other := newLog(t), newLog(t)
	first, cancelFirst := subscribe(t, f, path)
	second, _ := subscribe(t, f, path)
	elsewhere, _ := subscribe(t, f, other)
	if stats := statsOf(f); stats.Paths != 2 || stats.Subscribers != 3 || stats.Polled != 0 {
		t.Fatalf("stats %+v", stats)
	}
	write(t, path, "line\n")
	awaitWake(t, first)
	awaitWake(t, second)

	cancelFirst()
	cancelFirst()
	select { // of the write before the cancel
	case <-first:
	default:
	}
	write(t, path, "line\n")
	awaitWake(t, second)
	write(t, other, "line\n")
	awaitWake(t, elsewhere) // events are in order, so all earlier ones were delivered
	select {
	case <-first:
		t.Error("woken after cancel")
	default:
	}
	if stats := statsOf(f); stats.Paths != 2 || stats.Subscribers != 2 {
		t.Errorf("stats %+v", stats)
	}
}

func TestFilesLastCancelEndsTheWatch(t *testing.T) {
	t.Parallel()
	f := openFiles(t, Options{})
	start(t, f)
	path := newLog(t)
	_, one := subscribe(t, f, path)
	_, two := subscribe(t, f, path)
	one()
	if len(f.watcher.WatchList()) != 1 {
		t.Error("the watch ended with the first cancel")
	}
	two()
	if len(f.watcher.WatchList()) != 0 {
		t.Error("the watch stays after the last cancel")
	}
	wake, _ := subscribe(t, f, path)
	write(t, path, "again\n")
	awaitWake(t, wake)
}

func TestFilesSurvivesRemoval(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(path string) error{
		"remove": os.Remove,
		"rename": func(path string) error { return os.Rename(path, path+".old") },
		"rename and remove": func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.Remove(path+".old"))
		},
		"replace": func(path string) error {
			return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := openFiles(t, Options{})
			start(t, f)
			path := newLog(t)
			old, cancelOld := subscribe(t, f, path)
			must(t, leave(path))
			awaitWake(t, old)

			write(t, path, "a new file\n")
			fresh, cancelFresh := subscribe(t, f, path)
			write(t, path, "a line\n")
			awaitWake(t, fresh)
			awaitWake(t, old)
			cancelOld()
			write(t, path, "a line\n")
			awaitWake(t, fresh)
			cancelFresh()
			if stats := statsOf(f); stats.Paths != 0 || stats.Subscribers != 0 {
				t.Errorf("stats %+v", stats)
			}
		})
	}
}

func TestFilesRemovedButStillWritten(t *testing.T) {
	t.Parallel()
	f := openFiles(t, Options{})
	start(t, f)
	path := newLog(t)
	writer, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	defer writer.Close()
	wake, _ := subscribe(t, f, path)
	must(t, os.Remove(path))
	awaitWake(t, wake)
	_, err = writer.WriteString("still here\n")
	must(t, err)
	awaitWake(t, wake)
}

func TestFilesOtherSpellingsShareTheWatch(t *testing.T) {
	t.Parallel()
	f := openFiles(t, Options{})
	start(t, f)
	path := newLog(t)
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(filepath.Dir(path), link))
	direct, _ := subscribe(t, f, path)
	through, _ := subscribe(t, f, link+"/./a.log")
	if stats := statsOf(f); stats.Paths != 1 {
		t.Errorf("stats %+v", stats)
	}
	write(t, path, "x")
	awaitWake(t, direct)
	awaitWake(t, through)
}

// What is remembered of a folder holds no longer than the links on the way to it.
func TestFilesFollowAChangedLink(t *testing.T) {
	t.Parallel()
	f := openFiles(t, Options{})
	start(t, f)
	above := t.TempDir()
	file := func(folder string) string { return filepath.Join(above, folder, "day", "run", "a.log") }
	for _, folder := range []string{"one", "two"} {
		must(t, os.MkdirAll(filepath.Dir(file(folder)), 0o750))
		write(t, file(folder), "")
	}
	relink := func(to string) {
		link := filepath.Join(above, "link")
		must(t, errors.Join(os.RemoveAll(link), os.Symlink(to, link)))
	}
	relink("one")
	first, cancel := subscribe(t, f, file("link"))
	write(t, file("one"), "line\n")
	awaitWake(t, first)
	relink("two")
	second, _ := subscribe(t, f, file("link"))
	write(t, file("two"), "line\n")
	awaitWake(t, second)
	cancel()
	must(t, os.Rename(filepath.Join(above, "one"), filepath.Join(above, "three")))
	relink("three")
	third, _ := subscribe(t, f, file("link"))
	write(t, file("three"), "line\n")
	awaitWake(t, third)
}

func TestFilesWithSeveralNamesArePolled(t *testing.T) {
	t.Parallel()
	f := openFiles(t, Options{ScanInterval: 1})
	start(t, f)
	path := newLog(t)
	must(t, os.Link(path, path+".second"))
	one, cancelOne := subscribe(t, f, path)
	two, cancelTwo := subscribe(t, f, path+".second")
	awaitWake(t, one)
	awaitWake(t, two)
	if stats := statsOf(f); stats.Polled != 2 {
		t.Errorf("stats %+v", stats)
	}
	cancelOne()
	awaitWake(t, two)
	cancelTwo()
	if stats := statsOf(f); stats.Polled != 0 {
		t.Errorf("stats %+v", stats)
	}
}

func TestSubscribeErrors(t *testing.T) {
	t.Parallel()
	f := openFiles(t, Options{})
	stop := start(t, f)
	path := newLog(t)
	dir := filepath.Dir(path)
	must(t, os.Symlink(path, filepath.Join(dir, "symlink")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	wake := make(chan struct{}, 1)
	for _, name := range []string{"missing", "missing/missing"} {
		if _, err := f.Subscribe(filepath.Join(dir, name), wake); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"symlink", "fifo", "."} {
		if _, err := f.Subscribe(filepath.Join(dir, name), wake); err == nil ||
			!strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := f.Subscribe(path, make(chan struct{})); err == nil {
		t.Error("an unbuffered channel is accepted")
	}
	if stats := statsOf(f); stats.Paths != 0 || stats.Subscribers != 0 {
		t.Errorf("stats %+v", stats)
	}
	_, cancel := subscribe(t, f, path)
	stop()
	cancel()
	if _, err := f.Subscribe(path, wake); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Run: %v", err)
	}
}

// TestCloseWithAnUnreadError renames and removes a file at once, which makes fsnotify send an error
// with its lock held. Nothing reads it here, and Close needs that lock.
func TestCloseWithAnUnreadError(t *testing.T) {
	t.Parallel()
	for range 50 {
		f := openFiles(t, Options{})
		path := newLog(t)
		subscribe(t, f, path)
		must(t, os.Rename(path, path+".old"))
		must(t, os.Remove(path+".old"))
		must(t, f.Close())
	}
}

func TestFilesUnderConcurrentUse(t *testing.T) {
	t.Parallel()
	f := openFiles(t, Options{})
	start(t, f)
	dir := t.TempDir()
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for round := range 100 {
				path := filepath.Join(dir, fmt.Sprintf("%d.log", (worker+round)%4))
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Error(err)
					return
				}
				wake := make(chan struct{}, 1)
				cancel, err := f.Subscribe(path, wake)
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				switch round % 20 { // another worker may be first
				case 9:
					_ = os.Remove(path)
				case 19:
					_ = os.Rename(path, path+".old")
					_ = os.Remove(path + ".old")
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if stats := statsOf(f); stats.Paths != 0 || stats.Subscribers != 0 {
		t.Errorf("stats %+v", stats)
	}
}
