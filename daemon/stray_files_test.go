package daemon

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// lines is a log that a test reads while the daemon writes it.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// with counts the lines that contain all of the words.
func (l *lines) with(words ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := 0
	for line := range strings.Lines(l.text.String()) {
		has := true
		for _, word := range words {
			has = has && strings.Contains(line, word)
		}
		if has {
			count++
		}
	}
	return count
}

// logInto redirects the log of the daemon to lines.
func (b *bench) logInto() *lines {
	logged := new(lines)
	b.config.Logger = slog.New(slog.NewTextHandler(logged, nil))
	return logged
}

// TestFilesBesideAMarkerAreSetAside creates files with meaningless endings beside a marker, as
// people and editors do.
func TestFilesBesideAMarkerAreSetAside(t *testing.T) {
	t.Parallel()
	b := prepare(t, handlerJobs, testHandlers)
	b.config.SweepInterval = time.Hour // the files themselves cause the sweep
	logged := b.logInto()
	b.start()
	id := b.submit("wait", `{}`)
	b.awaitState(id, statefs.Running)
	endings := []string{".failed", ".completed", ".bogus_requested", ".running.bak"}
	for _, ending := range endings {
		must(t, os.WriteFile(filepath.Join(b.tree.JobsDir(), id.String()+ending), []byte("content"), 0o640))
	}
	for _, ending := range endings {
		b.await(ending+" is set aside", func() bool { return !b.exists(id.String() + ending) })
		if kept, _ := filepath.Glob(filepath.Join(b.dir, "corrupt", "*"+ending)); len(kept) != 1 {
			t.Errorf("corrupt/ holds %q", kept)
		}
	}
	_, err := b.daemon.Sweep(t.Context(), false) // which also waits until the last sweep has logged
	must(t, err)
	for _, ending := range endings {
		if n := logged.with("WARN", "file=jobs/"+id.String()+ending); n != 1 {
			t.Errorf("%s is reported %d times", ending, n)
		}
	}
	if !b.exists(statefs.MarkerName(id, statefs.Running)) {
		t.Error("the marker is gone")
	}
}

// The removal of a marker is a cancel, also beside a file with a meaningless ending: that is not the marker.
func TestMarkerIsRemovedBesideAnotherFile(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	id := b.submit("wait", `{}`)
	b.awaitState(id, statefs.Running)
	marker := filepath.Join(b.tree.JobsDir(), statefs.MarkerName(id, statefs.Running))
	must(t, os.WriteFile(marker+".bak", []byte("content"), 0o640))
	must(t, os.Remove(marker))
	if rec := b.awaitEnd(id); rec.Status != statefs.Cancelled ||
		rec.Transitions[len(rec.Transitions)-1].Cause != statefs.CauseMarkerMissing {
		t.Errorf("it ended as %s, %+v", rec.Status, rec.Transitions)
	}
}

// TestASweepReportsAFileOnce sweeps repeatedly over a folder with the name of a marker.
func TestASweepReportsAFileOnce(t *testing.T) {
	t.Parallel()
	b := prepare(t, handlerJobs, testHandlers)
	logged := b.logInto()
	b.start()
	id := testID(t, 77)
	odd := filepath.Join(b.tree.JobsDir(), statefs.MarkerName(id, statefs.Paused))
	sweep := func() {
		t.Helper()
		for range 3 {
			findings, err := b.daemon.Sweep(t.Context(), false)
			must(t, err)
			if _, err := os.Lstat(odd); err == nil && len(findings) != 1 {
				t.Errorf("found %v", findings)
			}
		}
	}
	want := func(times int) {
		t.Helper()
		if n := logged.with("WARN", "ignored by the sweep", filepath.Base(odd)); n != times {
			t.Errorf("reported %d times, want %d", n, times)
		}
	}
	must(t, os.Mkdir(odd, 0o750))
	sweep()
	want(1)
	must(t, os.Remove(odd))
	sweep()
	must(t, os.Mkdir(odd, 0o750))
	sweep()
	want(2)
	must(t, b.stop())
	b.start()
	sweep()
	want(3)
}

func TestIgnoredFilesAreCountedWhenTheyCome(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	ignored := func(want uint64) {
		t.Helper()
		b.poll(fmt.Sprintf("%d files are ignored", want), func() bool {
			return b.daemon.Health().Counters["ignored_files"] == want
		})
	}
	ignored(0)
	stranger, link := filepath.Join(b.tree.JobsDir(), "README"),
		filepath.Join(b.tree.JobsDir(), statefs.MarkerName(testID(t, 78), statefs.Running))
	must(t, os.WriteFile(stranger, nil, 0o640))
	ignored(1)
	must(t, os.Symlink(stranger, link))
	ignored(2)
	must(t, os.Remove(stranger))
	must(t, os.Remove(link))
	ignored(0)
}
