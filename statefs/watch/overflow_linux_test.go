package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// moreThanFits returns more events than the kernel's queue and the buffers of an idle reader can
// hold.
func moreThanFits(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	must(t, err)
	limit, err := strconv.Atoi(strings.TrimSpace(string(data)))
	must(t, err)
	const fsnotifyBuffer = 4096 // raw events, at most
	return limit + eventBuffer + fsnotifyBuffer + 4000
}

// flood causes that many events in dir.
func flood(t *testing.T, dir string) {
	t.Helper()
	for i := range moreThanFits(t) / 2 {
		name := filepath.Join(dir, fmt.Sprintf("op-flood-%d", i%100))
		must(t, os.Symlink("nowhere", name)) // one event
		must(t, os.Remove(name))             // another
	}
}

func TestDirOverflow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir, Options{})
	flood(t, dir)
	write(t, filepath.Join(dir, "op-lost"), "") // its event does not fit
	start(t, d)
	keys := takeUntil(t, d, func(_ map[string]bool, rescan bool) bool { return rescan })
	if keys["op-lost"] {
		t.Error("nothing was lost: the flood was too small")
	}
	if stats := d.Stats(); stats.Overflows == 0 || stats.Rescans != 1 || stats.Errors != 0 {
		t.Errorf("stats %+v", stats)
	}
	must(t, d.Check())
	if _, err := os.Stat(filepath.Join(dir, "op-lost")); err != nil {
		t.Error("the listing after the rescan misses the lost name")
	}
	write(t, filepath.Join(dir, "op-later"), "")
	takeKey(t, d, "op-later")
}

func TestFilesOverflowWakesEverybody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := openFiles(t, Options{})
	quiet := filepath.Join(dir, "quiet.log")
	write(t, quiet, "")
	wake := make(chan struct{}, 1)
	_, err := f.Subscribe(quiet, wake)
	must(t, err)
	// Two files in turn, because the kernel merges equal consecutive events.
	var loud [2]*os.File
	for i := range loud {
		path := filepath.Join(dir, fmt.Sprintf("loud%d.log", i))
		write(t, path, "")
		_, err := f.Subscribe(path, make(chan struct{}, 1))
		must(t, err)
		loud[i], err = os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		must(t, err)
		defer loud[i].Close()
	}
	for i := range moreThanFits(t) {
		_, err := loud[i%2].WriteString("x")
		must(t, err)
	}
	write(t, quiet, "lost")
	start(t, f)
	awaitWake(t, wake)
	if f.overflows.Load() == 0 {
		t.Error("no overflow is counted")
	}
	write(t, quiet, "later")
	awaitWake(t, wake)
}
