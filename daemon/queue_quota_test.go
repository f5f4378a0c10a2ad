package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/lanes"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

func TestAdmit(t *testing.T) {
	t.Parallel()
	b := prepare(t, laneJobs, testHandlers)
	b.config.Lanes = map[string]lanes.LaneConfig{"one": {}}
	b.config.Limits = map[string]int{"tool": 1}
	b.config.MaxQueued = 2
	b.start()
	admit := func(lanes ...string) error {
		var all []*statefs.Record
		for _, lane := range lanes {
			all = append(all, &statefs.Record{Group: "test", Job: "one", Lane: lane})
		}
		return b.daemon.Admit(all)
	}
	refusesOption := func(err error, option, want string) {
		t.Helper()
		if wrong, ok := errors.AsType[*submit.OptionError](err); !ok || wrong.Option != option || wrong.Reason != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	refusesOption(admit("one", "nowhere"), "lane",
		"job test/one names the lane 'nowhere', which the daemon does not have; it has default, one")
	refusesOption(admit("all"), "lane",
		"job test/one names the lane 'all', which the daemon does not have; it has default, one")
	refusesOption(b.daemon.Admit([]*statefs.Record{{Group: "test", Job: "one", Limits: []string{"tool", "disk"}}}),
		"limits", "job test/one names the limit 'disk', which the daemon does not have; it has tool")
	refusesOption(b.daemon.Admit([]*statefs.Record{{
		Group: "test", Job: "one",
		Steps: []steps.Step{{Name: "a", Lane: "one"}, {Name: "b", Lane: "nowhere"}},
	}}),
		"lane", "step b of job test/one names the lane 'nowhere', which the daemon does not have; it has default, one")
	refusesOption(b.daemon.Admit([]*statefs.Record{{
		Group: "test", Job: "one",
		Steps: []steps.Step{{Name: "a", Limits: []string{"disk"}}},
	}}),
		"limits", "step a of job test/one names the limit 'disk', which the daemon does not have; it has tool")
	busy := func(err error, text string, full bool, after time.Duration) {
		t.Helper()
		if refused, ok := errors.AsType[*submit.BusyError](err); !ok || !strings.HasPrefix(refused.Text, text) ||
			refused.Full != full || refused.RetryAfter > after || refused.RetryAfter <= 0 {
			t.Errorf("%#v, want %s", err, text)
		}
	}
	busy(admit("one", "one", "one"), "The queue is full: 0 operations wait, and max_queued is 2", true, retryAfterFull)
	b.awaitWaiting(b.submit("one", `{}`), statefs.WaitsForLane)
	busy(admit("one", "one"), "The queue is full: 1 operations wait, and max_queued is 2; these would be 2 more",
		true, retryAfterFull)
	until := time.Now().Add(time.Hour)
	must(t, b.tree.Lanes.Hold(statefs.LaneFile{Lane: "one", Control: statefs.LaneClosed},
		statefs.LaneHold{Until: &until, Reason: "inventory"}))
	b.daemon.Lanes.Apply()
	busy(admit("default", "one"), "Lane 'one' is closed until "+until.Local().Format(time.RFC3339)+": inventory", false,
		time.Hour)
	must(t, admit("default")) // takes the last place
	b.put("all.closed", "")
	b.daemon.Lanes.Apply()
	busy(admit("default"), "All lanes are closed", false, lanes.RetryAfterClosed)
}

// setupQuota starts a daemon whose intake respects max_queued. The returned function submits a list of n operations.
func setupQuota(t *testing.T, maxQueued int, prepared ...func(*bench)) (*bench, func(n int) ([]submit.Outcome, error)) {
	t.Helper()
	b := prepare(t, laneJobs, testHandlers)
	for _, change := range prepared {
		change(b)
	}
	b.config.Lanes = map[string]lanes.LaneConfig{"one": {}}
	b.config.MaxQueued = maxQueued
	b.config.Intake = submit.NewIntake(submit.Config{
		Tree:  b.tree,
		Admit: func(drafts []*statefs.Record) error { return b.daemon.Admit(drafts) },
	})
	b.start()
	def := b.catalog.Get("test", "one")
	params, err := def.BindJSON([]byte(`{}`))
	must(t, err)
	one := submit.Request{Definition: def, Params: params, ForceNew: true}
	return b, func(n int) ([]submit.Outcome, error) {
		return b.config.Intake.Submit(t.Context(), slices.Repeat([]submit.Request{one}, n)...)
	}
}

// Concurrent submits are admitted up to the limit and no further; when one operation ends, one more
// is admitted.
func TestQueueQuotaUnderConcurrentSubmits(t *testing.T) {
	t.Parallel()
	b, submitList := setupQuota(t, 10)
	var all sync.WaitGroup
	var taken, refused atomic.Int32
	for range 100 {
		all.Go(func() {
			_, err := submitList(1)
			switch busy, ok := errors.AsType[*submit.BusyError](err); {
			case err == nil:
				taken.Add(1)
			case ok && busy.Full:
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if taken.Load() != 10 || refused.Load() != 90 {
		t.Fatalf("%d taken, %d refused", taken.Load(), refused.Load())
	}
	listing, err := b.tree.List()
	must(t, err)
	b.cancel(listing.Markers[0].ID)
	b.poll("there is room for one", func() bool { _, err := submitList(1); return err == nil })
	if _, err := submitList(1); err == nil {
		t.Error("there is room for a second one")
	}
}

// A list that is refused as a whole, or published only in part, leaves the places of what was not published to
// others. The name of one marker is taken: that of the first, without which nothing is published, or that of the
// second.
func TestQueueQuotaAfterAFailedPublish(t *testing.T) {
	t.Parallel()
	for taken, name := range []string{"refused", "in part"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, submitList := setupQuota(t, 4, (*bench).onFiles) // with the journal, a list is accepted as a whole
			first, err := submitList(1)
			must(t, err)
			for second := range 60 { // of the time in the ID, which is that of the submit
				id, err := statefs.MakeID("test-one", b.now().Add(time.Duration(second)*time.Second), os.Getpid(),
					first[0].Record.ID.Sequence()+uint64(1+taken))
				must(t, err)
				obstacle := filepath.Join(b.tree.JobsDir(), statefs.MarkerName(id, statefs.Queued))
				must(t, os.Mkdir(obstacle, 0o700))
			}
			_, err = submitList(3)
			if _, part := errors.AsType[*statefs.PartialPublishError](err); !errors.Is(err, fs.ErrExist) || part != (taken > 0) {
				t.Fatalf("the list: %v", err)
			}
			b.poll("all markers are known", func() bool {
				listing, err := b.tree.List()
				must(t, err)
				return len(listing.Markers) == b.daemon.countWaiting()
			})
			left := 4 - b.daemon.countWaiting()
			if left < 1 || taken == 0 && left != 3 {
				t.Fatalf("%d places are left", left)
			}
			if _, err := submitList(left + 1); err == nil {
				t.Errorf("there are %d places and one more", left)
			}
			_, err = submitList(left)
			must(t, err)
		})
	}
}

const failingJobs = `
group: test
name: again
exit_codes: {retryable: [1]}
retry: {max_attempts: 3, initial: 1h}
unique: {on_hit: off}
run: ["false"]
`

// Operations that wait for a retry count against the quota like queued ones, since they start by
// themselves.
func TestRetriesCountAgainstQueueQuota(t *testing.T) {
	t.Parallel()
	b := prepare(t, failingJobs, nil)
	b.config.MaxQueued = 2
	b.start()
	first, second := b.submit("again", `{}`), b.submit("again", `{}`)
	b.awaitState(first, statefs.FailedRetryable)
	b.awaitState(second, statefs.FailedRetryable)
	// The marker exists before the count changes; an earlier Admit would leave a reservation
	// without an operation.
	b.poll("both are counted", func() bool { return b.daemon.countWaiting() == 2 })
	one := []*statefs.Record{{Group: "test", Job: "again"}}
	if err := b.daemon.Admit(one); err == nil ||
		!strings.HasPrefix(err.Error(), "The queue is full: 2 operations wait, and max_queued is 2") {
		t.Errorf("a third one: %v", err)
	}
	b.touch(first, statefs.Pause) // a person pauses it
	b.awaitState(first, statefs.Paused)
	b.poll("there is room for one", func() bool { return b.daemon.Admit(one) == nil })
}
