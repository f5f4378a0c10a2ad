package watch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// scanning checks that d and f find changes without events.
func scanning(t *testing.T, d *Dir[string], dir string, f *Files) {
	t.Helper()
	start(t, d)
	start(t, f)
	must(t, d.Check())
	write(t, filepath.Join(dir, "op-new"), "")
	takeByListing(t, d, dir, "op-new")
	if d.Stats().Rescans == 0 {
		t.Error("no rescan counted")
	}

	wake := make(chan struct{}, 1)
	cancel, err := f.Subscribe(filepath.Join(dir, "op-new"), wake)
	must(t, err)
	awaitWake(t, wake)
	awaitWake(t, wake)
	if stats := statsOf(f); stats.Polled != 1 {
		t.Errorf("stats %+v", stats)
	}
	cancel()
	if stats := statsOf(f); stats.Polled != 0 || stats.Paths != 0 {
		t.Errorf("stats after cancel %+v", stats)
	}
}

func wantScan(t *testing.T, mode Mode, words string) {
	t.Helper()
	if mode.Name != ModeScan || !strings.Contains(mode.Reason, words) {
		t.Errorf("mode %+v, want scan and a reason with %q", mode, words)
	}
}

const quickScan = 5 * time.Millisecond

func TestScanWithoutFreeInstances(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	must(t, os.WriteFile("/proc/sys/user/max_inotify_instances", []byte("0"), 0))
	dir := t.TempDir()
	d := openDir(t, dir, Options{ScanInterval: quickScan})
	wantScan(t, d.Mode(), "fs.inotify.max_user_instances")
	f := openFiles(t, Options{ScanInterval: quickScan})
	wantScan(t, f.mode, "fs.inotify.max_user_instances")
	scanning(t, d, dir, f)
}

func TestScanWithoutFreeWatches(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	must(t, os.WriteFile("/proc/sys/user/max_inotify_watches", []byte("0"), 0))
	dir := t.TempDir()
	d := openDir(t, dir, Options{ScanInterval: quickScan})
	wantScan(t, d.Mode(), "fs.inotify.max_user_watches")
	f := openFiles(t, Options{ScanInterval: quickScan})
	if f.mode.Name != ModeInotify {
		t.Errorf("mode of files %+v", f.mode)
	}
	scanning(t, d, dir, f)
}

func TestScanWithoutFreeDescriptors(t *testing.T) {
	t.Parallel()
	if !inChild(t, &syscall.SysProcAttr{}) {
		return
	}
	dir := t.TempDir()
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 100, Max: 100}))
	var fillers []*os.File
	for {
		filler, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		must(t, err)
		fillers = append(fillers, filler)
	}
	f := openFiles(t, Options{ScanInterval: quickScan})
	// One descriptor is left, and the folder itself takes it.
	must(t, fillers[0].Close())
	d := openDir(t, dir, Options{ScanInterval: quickScan})
	for _, filler := range fillers[1:] {
		must(t, filler.Close())
	}
	wantScan(t, d.Mode(), "limit of open files")
	wantScan(t, f.mode, "limit of open files")
	scanning(t, d, dir, f)
}
