package lanes

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobdir/jobdir/daemon/queue"
	"github.com/jobdir/jobdir/statefs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// own makes a storage and takes its lock.
func own(t *testing.T) *statefs.Owner {
	t.Helper()
	tree, err := statefs.Open(filepath.Join(t.TempDir(), "storage"), statefs.Options{Durability: statefs.Process})
	must(t, err)
	owner, err := statefs.Own(tree)
	must(t, err)
	t.Cleanup(func() {
		must(t, owner.Release())
		must(t, tree.Close())
	})
	return owner
}

// noQueue is a queue in which nothing waits.
type noQueue struct{}

func (noQueue) SetLanes(...Change) {}

func (noQueue) TakeTrial(string) (id statefs.ID, ok bool) { return id, false }

func (noQueue) TrialEnded(statefs.ID) bool { return false }

func (noQueue) RestoreStarts(string, []time.Time) {}

func (noQueue) Changed() {}

func (noQueue) Lanes() []queue.LaneStats { return nil }

func (noQueue) Limits() []statefs.LimitStatus { return nil }

func (noQueue) AwaitStarts() {}

// pausedQueue notes what the log has of a pause when the queue gets it.
type pausedQueue struct {
	noQueue
	log    *bytes.Buffer
	logged *string
}

func (q pausedQueue) SetLanes(changes ...Change) {
	for _, c := range changes {
		if c.Config.Paused {
			*q.logged = q.log.String()
		}
	}
}

// TestPauseIsPublishedAfterItHolds: after its pause was published, nothing starts in a lane, also if it is submitted
// then.
func TestPauseIsPublishedAfterItHolds(t *testing.T) {
	t.Parallel()
	owner, log, logged := own(t), new(bytes.Buffer), "no pause"
	l, err := New(Config{
		Owner: owner, Queue: pausedQueue{noQueue{}, log, &logged}, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Lanes:  map[string]LaneConfig{"one": {Lane: queue.Lane{Capacity: 1}}},
		Uptime: func() time.Duration { return 0 },
	})
	must(t, err)
	defer func() { must(t, l.Close()) }()
	l.Reconcile()
	file := statefs.LaneFile{Lane: "one", Control: statefs.LanePaused}
	must(t, owner.Lanes.Hold(file, statefs.LaneHold{Reason: "tea"}))
	l.Reconcile()
	if logged != "" || !strings.Contains(log.String(), "what=paused") {
		t.Errorf("before the queue got the pause the log had %q, and afterwards %q", logged, log)
	}
}

// TestRunThatEndsAtOnceReleasesTheWatch: a daemon whose start fails ends the context before Run has begun. TestMain
// finds the watch that stays.
func TestRunThatEndsAtOnceReleasesTheWatch(t *testing.T) {
	t.Parallel()
	owner := own(t)
	l, err := New(Config{
		Owner: owner, Queue: noQueue{}, Logger: slog.New(slog.DiscardHandler),
		Uptime: func() time.Duration { return 0 },
	})
	must(t, err)
	ended, end := context.WithCancel(t.Context())
	end()
	must(t, l.Run(ended))
}

// A partly written file has no effect and is not reported until it has not changed for statefs.QuietPeriod.
func TestLaneFileIsReadWhenItIsQuiet(t *testing.T) {
	t.Parallel()
	owner := own(t)
	put := func(name, text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(owner.Lanes.Dir(), name), []byte(text), 0o640))
	}
	var ran time.Duration
	l, err := New(Config{
		Owner: owner, Queue: noQueue{}, Logger: slog.New(slog.DiscardHandler),
		Lanes:  map[string]LaneConfig{"one": {Lane: queue.Lane{Capacity: 1}}},
		Uptime: func() time.Duration { return ran },
	})
	must(t, err)
	defer func() { must(t, l.Close()) }()
	capacity, paused := l.byName["one"].files[statefs.LaneCapacity], l.byName["one"].files[statefs.LanePaused]

	put("one.capacity", "1")
	l.Reconcile()
	if capacity.exists {
		t.Error("1 counts, and it may become 16")
	}
	ran += statefs.QuietPeriod / 2
	put("one.capacity", "16")
	l.Reconcile()
	ran += statefs.QuietPeriod / 2
	l.Reconcile()
	if capacity.exists {
		t.Error("16 counts, and it was written just now")
	}
	ran += statefs.QuietPeriod / 2
	l.Reconcile()
	if !capacity.exists || capacity.value.Capacity != 16 || capacity.problem != "" {
		t.Errorf("%+v", capacity)
	}
	put("one.capacity", "ma")
	l.Reconcile()
	if capacity.problem != "" {
		t.Error("half a word is reported")
	}
	ran += statefs.QuietPeriod
	l.Reconcile()
	if capacity.problem == "" || capacity.value.Capacity != 16 {
		t.Errorf("%+v", capacity)
	}

	put("one.paused", `{"until": "2999-01-01T00:0`)
	l.Reconcile()
	if !paused.exists || paused.problem != "" || !l.byName["one"].published.config.Paused {
		t.Errorf("a pause counts at once: %+v", paused)
	}
	put("one.paused", `{"until": "2999-01-01T00:00:00Z"}`)
	ran += statefs.QuietPeriod
	l.Reconcile() // sees the change
	ran += statefs.QuietPeriod
	l.Reconcile()
	if paused.problem != "" || paused.value.Hold.Until == nil {
		t.Errorf("%+v", paused)
	}
	// The value in effect has expired, and the present file is invalid: the lane stays paused.
	put("one.paused", "{\n")
	ran += statefs.QuietPeriod
	l.Reconcile()
	ran += statefs.QuietPeriod
	l.Reconcile()
	if paused.problem == "" || paused.value.Hold.Until == nil {
		t.Errorf("%+v", paused)
	}
	past := time.Now().Add(-time.Hour)
	paused.value.Hold.Until = &past
	l.Reconcile()
	if !paused.exists || paused.value.Hold.Until != nil {
		t.Errorf("%+v", paused)
	}
}

func TestExitCodeIsSaidOnce(t *testing.T) {
	t.Parallel()
	if withExit("7", "7") != "7" || withExit("stall", "") != "stall" {
		t.Error("a name is said twice, or a code that is not there")
	}
}
