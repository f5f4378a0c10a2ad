package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/watch"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && (os.Args[1] == keeperArg || os.Args[1] == wardenArg) {
		play := func() error { return playKeeper(os.Args[2]) }
		if os.Args[1] == wardenArg {
			play = func() error { return keeper.Warden(context.Background(), os.Args[2:], os.Stdin) }
		}
		if err := play(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv(daemonDir); dir != "" {
		if err := childDaemon(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// patience is the timeout of every wait in these tests; nothing depends on its length.
const patience = 2 * time.Minute

// bench is a storage directory with a daemon on it.
type bench struct {
	t        *testing.T
	dir      string
	tree     *statefs.Tree
	catalog  *catalog.Catalog
	handlers work.Handlers
	config   Config
	jump     atomic.Int64          // how far the clock of the storage is ahead, in nanoseconds
	changes  [2]*watch.Dir[string] // of jobs/ and of the day's folder

	daemon  *Daemon
	abandon context.CancelCauseFunc
	ended   chan error
}

// setup makes a storage and starts a daemon with the given jobs and handlers.
func setup(t *testing.T, jobs string, handlers work.Handlers) *bench {
	t.Helper()
	b := prepare(t, jobs, handlers)
	b.start()
	return b
}

func prepare(t *testing.T, jobs string, handlers work.Handlers) *bench {
	t.Helper()
	return prepareAt(t, filepath.Join(t.TempDir(), "storage"), jobs, handlers)
}

// catalogOf parses job definitions.
func catalogOf(t *testing.T, jobs string, handlers work.Handlers) *catalog.Catalog {
	t.Helper()
	c := catalog.New(catalog.Options{
		Extra:    []catalog.Source{{Name: "test.yaml", YAML: []byte(jobs)}},
		Handlers: func() []string { return slices.Collect(maps.Keys(handlers)) },
	})
	must(t, c.Reload())
	return c
}

func prepareAt(t *testing.T, dir, jobs string, handlers work.Handlers) *bench {
	t.Helper()
	b := &bench{t: t, dir: dir, handlers: handlers}
	var err error
	if b.tree, err = statefs.Open(b.dir, commitOptions(statefs.Options{Now: b.now})); err != nil {
		t.Fatal(err)
	}
	b.catalog = catalogOf(t, jobs, handlers)
	day := filepath.Join(b.dir, "operations", time.Now().Format(time.DateOnly))
	if err := os.MkdirAll(day, 0o750); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan error, len(b.changes))
	for i, dir := range []string{b.tree.JobsDir(), day} {
		changes, err := watch.OpenDir(dir, func(name string) (string, bool) { return name, true }, watch.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b.changes[i] = changes
		go func() { watched <- changes.Run(ctx) }()
	}
	t.Cleanup(func() {
		if b.daemon != nil {
			if err := b.stop(); err != nil {
				t.Errorf("daemon: %v", err)
			}
		}
		cancel()
		for range b.changes {
			if err := <-watched; err != nil {
				t.Errorf("watch: %v", err)
			}
		}
		b.checkRecords()
		if err := b.tree.Close(); err != nil {
			t.Errorf("close the tree: %v", err)
		}
	})
	return b
}

// commitOptions adds how the daemon commits: by the journal, with small segments, if the environment says so.
func commitOptions(o statefs.Options) statefs.Options {
	o.Commit.Method, o.Commit.SegmentSize = statefs.CommitMethod(os.Getenv("JOBDIR_COMMIT")), 256<<10
	return o
}

// onFiles makes the daemon commit by files: the test is about their order.
func (b *bench) onFiles() {
	b.t.Helper()
	must(b.t, b.tree.Close())
	var err error
	files := statefs.CommitOptions{Method: statefs.CommitFiles}
	b.tree, err = statefs.Open(b.dir, statefs.Options{Now: b.now, Commit: files})
	must(b.t, err)
}

// awaitFiles waits until the files of all records are written.
func (b *bench) awaitFiles() {
	b.t.Helper()
	b.poll("the files of the records are written", func() bool {
		s, inUse := b.daemon.owner.Journal.Status()
		return !inUse || s.Behind == 0
	})
}

// now is the clock of the storage. After a jump it has no monotonic reading, like a time read from
// a file.
func (b *bench) now() time.Time {
	if by := time.Duration(b.jump.Load()); by != 0 {
		return time.Now().Round(0).Add(by)
	}
	return time.Now()
}

func (b *bench) start() {
	b.t.Helper()
	b.startAfter(func() {})
}

// startAfter starts a daemon, and calls do before it runs.
func (b *bench) startAfter(do func()) {
	b.t.Helper()
	owner, err := statefs.Own(b.tree)
	if err != nil {
		b.t.Fatal(err)
	}
	config := b.completeConfig(owner)
	if b.daemon, err = New(config); err != nil {
		b.t.Fatal(err)
	}
	ctx, abandon := context.WithCancelCause(context.Background())
	b.abandon, b.ended = abandon, make(chan error, 1)
	d := b.daemon
	do()
	go func() {
		b.ended <- errors.Join(d.Run(ctx), config.History.Close(), owner.Release())
	}()
	select {
	case <-d.Ready():
	case err := <-b.ended:
		b.t.Fatalf("the daemon did not start: %v", err)
	}
}

// completeConfig returns the configuration of a daemon on a storage with a lock.
func (b *bench) completeConfig(owner *statefs.Owner) Config {
	b.t.Helper()
	b.config.Owner, b.config.Catalog, b.config.Handlers = owner, b.catalog, b.handlers
	if b.config.Logger == nil {
		b.config.Logger = slog.New(slog.NewTextHandler(testWriter{b.t}, nil))
	}
	config := b.config
	var err error
	config.History, err = history.Open(owner, config.Logger)
	must(b.t, err)
	if config.Intake == nil {
		config.Intake = submit.NewIntake(submit.Config{Tree: b.tree})
	}
	return config
}

// unstarted returns a daemon that never runs.
func (b *bench) unstarted() *Daemon {
	b.t.Helper()
	owner, err := statefs.Own(b.tree)
	must(b.t, err)
	config := b.completeConfig(owner)
	d, err := New(config)
	must(b.t, err)
	b.t.Cleanup(func() { must(b.t, errors.Join(d.Close(), config.History.Close(), owner.Release())) })
	return d
}

// stop stops the daemon and returns the result of Run.
func (b *bench) stop() error {
	b.abandon(nil)
	err := <-b.ended
	b.daemon = nil
	return err
}

func (b *bench) submit(job string, params string) statefs.ID {
	b.t.Helper()
	def := b.catalog.Get("test", job)
	if def == nil {
		b.t.Fatalf("no job test/%s", job)
	}
	bound, err := def.BindJSON([]byte(params))
	if err != nil {
		b.t.Fatal(err)
	}
	s, err := submit.Build(def, bound, submit.Options{}, time.Now())
	must(b.t, err)
	s.Total = def.Total(bound)
	rec, err := publish(b.tree, s)
	must(b.t, err)
	return rec.ID
}

// publish submits an operation as another process does.
func publish(tree *statefs.Tree, s statefs.Submission) (*statefs.Record, error) {
	rec, err := tree.Draft(s)
	if err != nil {
		return nil, err
	}
	return rec, tree.Publish(rec)
}

// await waits until the condition holds; it checks after each change in jobs/ and among the records
// and logs.
func (b *bench) await(what string, holds func() bool) {
	b.t.Helper()
	b.awaitWhile(what, holds, func() bool { return false })
}

// awaitAll waits until a condition has held for each operation. The timeout starts again whenever
// it comes to hold for another one.
func (b *bench) awaitAll(what string, ids []statefs.ID, holds func(statefs.ID) bool) {
	b.t.Helper()
	left := ids
	b.awaitWhile(fmt.Sprintf("%d operations %s", len(ids), what), func() bool {
		for len(left) > 0 && holds(left[0]) {
			left = left[1:]
		}
		return len(left) == 0
	}, func() bool {
		still := slices.DeleteFunc(slices.Clone(left), holds)
		fewer := len(still) < len(left)
		left = still
		return fewer
	})
}

// awaitWhile is await with a timeout that starts again as long as goesOn reports progress.
func (b *bench) awaitWhile(what string, holds, goesOn func() bool) {
	b.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-b.changes[0].Ready():
			b.changes[0].Take()
		case <-b.changes[1].Ready():
			b.changes[1].Take()
		case err := <-b.ended:
			b.ended <- err
			if !holds() {
				b.t.Fatalf("the daemon ended before %s: %v", what, err)
			}
			return
		case <-deadline.C:
			if goesOn() {
				deadline.Reset(patience)
				continue
			}
			names, _ := filepath.Glob(b.tree.JobsDir() + "/*")
			b.t.Fatalf("waited in vain until %s; jobs/ holds %q", what, names)
		}
	}
}

func (b *bench) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(b.tree.JobsDir(), name))
	return err == nil
}

func (b *bench) awaitState(id statefs.ID, state statefs.State) {
	b.t.Helper()
	b.await(id.String()+" is "+string(state), func() bool { return b.exists(statefs.MarkerName(id, state)) })
}

// awaitEnd waits until an operation has ended and returns its record.
func (b *bench) awaitEnd(id statefs.ID) *statefs.Record {
	b.t.Helper()
	var rec *statefs.Record
	b.await(id.String()+" has ended", func() (ended bool) {
		rec, ended = b.hasEnded(id)
		return ended
	})
	return rec
}

// hasEnded returns the record of an operation if that has ended.
func (b *bench) hasEnded(id statefs.ID) (*statefs.Record, bool) {
	if sight, err := b.tree.ObserveAll(id); err != nil || len(sight.States) > 0 {
		return nil, false // the marker is removed last
	}
	rec, err := b.tree.ReadRecord(id)
	return rec, err == nil && rec.Status.Terminal()
}

// awaitRecord waits until the record and the marker of an operation have a state, and returns the
// record.
func (b *bench) awaitRecord(id statefs.ID, state statefs.State) (rec *statefs.Record) {
	b.t.Helper()
	b.poll(id.String()+" is "+string(state), func() bool {
		var err error
		rec, err = b.tree.ReadRecord(id)
		return err == nil && rec.Status == state && b.exists(statefs.MarkerName(id, state)) == state.Live()
	})
	return rec
}

func (b *bench) touch(id statefs.ID, ask statefs.Action) {
	b.t.Helper()
	f, err := os.OpenFile(filepath.Join(b.tree.JobsDir(), statefs.RequestName(id, ask)), os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) mv(from, to string) {
	b.t.Helper()
	if err := os.Rename(filepath.Join(b.tree.JobsDir(), from), filepath.Join(b.tree.JobsDir(), to)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) log(id statefs.ID) string {
	b.t.Helper()
	f, err := b.tree.OpenLog(id)
	if errors.Is(err, fs.ErrNotExist) {
		return "" // nothing was written yet
	}
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}

func (b *bench) wantLog(id statefs.ID, lines ...string) {
	b.t.Helper()
	if got, want := b.log(id), strings.Join(lines, "\n")+"\n"; got != want {
		b.t.Errorf("log of %s:\n%swant:\n%s", id, got, want)
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// awaitLog waits until the log of an operation contains a text.
func (b *bench) awaitLog(id statefs.ID, text string) {
	b.t.Helper()
	b.await(fmt.Sprintf("the log of %s has %q", id, text), func() bool {
		log, err := os.ReadFile(b.tree.LogPath(id))
		return err == nil && strings.Contains(string(log), text)
	})
}

// poll checks periodically, for conditions that cause no event in the storage.
func (b *bench) poll(what string, holds func() bool) {
	b.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			b.t.Fatalf("waited in vain until %s", what)
		}
	}
}
