package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// TestProbeNotices uses a working watcher without a watch on the folder, which behaves like a file
// system without events.
func TestProbeNotices(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	d := openDir(t, dir, Options{ProbeTimeout: 10 * time.Millisecond})
	deaf, err := fsnotify.NewWatcher()
	must(t, err)
	t.Cleanup(func() { must(t, closeWatcher(deaf)) })
	must(t, deaf.Add(elsewhere))
	working := d.watcher
	d.watcher = deaf
	defer func() { d.watcher = working }()
	if seen, err := d.probe(); seen || err != nil {
		t.Errorf("probe of a folder without events: seen %v, %v", seen, err)
	}
	noProbeLeft(t, dir)
}

func TestProbePassesOtherEventsOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir, Options{ProbeTimeout: patience})
	write(t, filepath.Join(dir, "op-a"), "")
	write(t, filepath.Join(dir, "other"), "")
	seen, err := d.probe()
	if !seen || err != nil {
		t.Fatalf("seen %v, %v", seen, err)
	}
	if !d.Pending("op-a") {
		t.Error("an event that came before that of the probe was lost")
	}
	start(t, d)
	write(t, filepath.Join(dir, "op-b"), "")
	takeKey(t, d, "op-b")
	if stats := d.Stats(); stats.Unknown != 1 {
		t.Errorf("stats %+v: probes count, or the unknown name does not", stats)
	}
}

func TestProbeStepsOverLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	next := probeNumber.Load()
	for i := range uint64(20) {
		write(t, filepath.Join(dir, fmt.Sprintf("%s%d-%d", ProbePrefix, os.Getpid(), next+i+1)), "")
	}
	d := openDir(t, dir, Options{})
	if d.Mode() != (Mode{Name: ModeInotify}) {
		t.Errorf("mode %+v", d.Mode())
	}
}
