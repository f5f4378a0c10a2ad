package watch

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the wait for a condition; only a failing test waits that long.
const patience = 60 * time.Second

// operationKey accepts the names that begin with "op-"; the key is the name.
func operationKey(name string) (string, bool) { return name, strings.HasPrefix(name, "op-") }

func openDir(tb testing.TB, dir string, o Options) *Dir[string] {
	tb.Helper()
	d, err := OpenDir(dir, operationKey, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { d.Close() })
	return d
}

func openFiles(tb testing.TB, o Options) *Files {
	tb.Helper()
	f := OpenFiles(o)
	tb.Cleanup(func() { f.Close() })
	return f
}

// filesStats is what a Files holds now.
type filesStats struct{ Paths, Subscribers, Polled int }

func statsOf(f *Files) filesStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	stats := filesStats{Paths: len(f.paths), Polled: f.polled}
	for _, file := range f.paths {
		stats.Subscribers += len(file.subscribers)
	}
	return stats
}

// start runs r until the test ends, or until the function it returns is called.
func start(tb testing.TB, r interface{ Run(context.Context) error }) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx); err != nil {
			tb.Errorf("Run: %v", err)
		}
	})
	stop = func() { cancel(); wg.Wait() }
	tb.Cleanup(stop)
	return stop
}

// takeUntil collects keys until enough returns true.
func takeUntil(tb testing.TB, d *Dir[string], enough func(keys map[string]bool, rescan bool) bool) map[string]bool {
	tb.Helper()
	deadline := time.After(patience)
	all := make(map[string]bool)
	for {
		select {
		case <-d.Ready():
		case <-deadline:
			tb.Fatalf("nothing more within %v; keys so far: %v, mode %+v, stats %+v", patience, all, d.Mode(), d.Stats())
		}
		keys, rescan := d.Take()
		for _, key := range keys {
			all[key] = true
		}
		if enough(all, rescan) {
			return all
		}
	}
}

func takeKey(tb testing.TB, d *Dir[string], key string) map[string]bool {
	tb.Helper()
	return takeUntil(tb, d, func(keys map[string]bool, _ bool) bool { return keys[key] })
}

// takeByListing waits for a rescan after which a listing has the name.
func takeByListing(tb testing.TB, d *Dir[string], dir, name string) {
	tb.Helper()
	takeUntil(tb, d, func(_ map[string]bool, rescan bool) bool {
		if !rescan {
			return false
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			tb.Fatal(err)
		}
		for _, entry := range entries {
			if entry.Name() == name {
				return true
			}
		}
		return false
	})
}

func awaitWake(tb testing.TB, wake <-chan struct{}) {
	tb.Helper()
	select {
	case <-wake:
	case <-time.After(patience):
		tb.Fatalf("not woken within %v", patience)
	}
}

func write(tb testing.TB, path, text string) {
	tb.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := file.WriteString(text); err != nil {
		tb.Fatal(err)
	}
	if err := file.Close(); err != nil {
		tb.Fatal(err)
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func noProbeLeft(tb testing.TB, dir string) {
	tb.Helper()
	left, err := filepath.Glob(filepath.Join(dir, ProbePrefix+"*"))
	if err != nil || len(left) > 0 {
		tb.Fatalf("probe files left: %v (%v)", left, err)
	}
}
