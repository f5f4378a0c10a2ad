package top

import (
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/cli/term"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/api"
)

var topNow = time.Date(2026, 11, 22, 12, 0, 0, 0, time.Local)

func topID(t *testing.T, name string) statefs.ID {
	t.Helper()
	id, err := statefs.ParseID("g-" + name + "_2026-11-22_11-00-00_p1_r" + strings.Trim(name,
		"abcdefghijklmnopqrstuvwxyz"))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func topEvent(t *testing.T, name string, from, to statefs.State) *client.Event {
	t.Helper()
	return &client.Event{ID: topID(t, name), From: from, To: to, At: topNow.Add(-90 * time.Second), Lane: "cookie"}
}

// topKnown returns a model that received a few events.
func topKnown(t *testing.T) *model {
	t.Helper()
	m := newModel(topNow.Add(-time.Minute))
	m.list([]client.Operation{
		{ID: topID(t, "a1"), State: statefs.Running, CreatedAt: topNow.Add(-3 * time.Hour)},
		{
			ID: topID(t, "b2"), State: statefs.Queued, CreatedAt: topNow.Add(-time.Second),
			Waiting: &statefs.Waiting{Reason: statefs.WaitsForLane, Lane: "default", Position: 2},
		},
		{ID: topID(t, "z9"), State: statefs.Completed},
	})
	total := int64(20)
	for _, e := range []*client.Event{
		topEvent(t, "c3", "", statefs.Queued), topEvent(t, "c3", statefs.Queued, statefs.Running),
		{ID: topID(t, "c3"), Progress: &statefs.Progress{Done: 3, Total: &total, Phase: "LOAD\x1b[2J"}},
		topEvent(t, "d4", "", statefs.Queued), topEvent(t, "e5", "", statefs.Queued),
		topEvent(t, "e5", statefs.Queued, statefs.Running),
		topEvent(t, "e5", statefs.Running, statefs.Completed), topEvent(t, "f6", statefs.Running, statefs.FailedManual),
		{ID: topID(t, "d4"), Waiting: &statefs.Waiting{
			Reason: statefs.WaitsForKey, Key: "k",
			HeldBy: topID(t, "c3"), Position: 1,
		}},
		{ID: topID(t, "unknown7"), Progress: &statefs.Progress{}},
		{ID: topID(t, "a1"), Stalled: new(true)},
	} {
		m.take(e, topNow)
	}
	return m
}

func topStats() *client.Stats {
	two := 2
	return &client.Stats{
		States: map[statefs.State]int{statefs.Running: 2, statefs.Queued: 2, statefs.FailedManual: 1, statefs.Completed: 7},
		LiveStats: api.LiveStats{
			Lanes: []api.LaneStats{
				{Name: "cookie", Capacity: &two, Running: 1, Queued: 1, Held: true, OldestWait: 90},
				{
					Name: "default", Running: 1, Queued: 1, OldestWait: 1, Waiting: api.Times{Count: 9, P50: 0.25, P99: 75},
					Processing: api.Times{Count: 9, P50: 5000, P99: 200_000},
				},
			},
			All: api.LaneStats{Running: 2, Queued: 2},
		},
	}
}

func TestTopPicture(t *testing.T) {
	t.Parallel()
	v := &view{address: "unix:/s", now: topNow, stats: topStats(), model: topKnown(t), follows: true}
	want := `jobdir  unix:/s  12:00:00
2 running, 0 paused, 2 queued, 0 later, 1 for a person;  0.2 starts/s, 0.1 ends/s

LANE             RUNNING  QUEUED  PAUSED  OLDEST  WAITED            WORKED
cookie (paused)  1/2      1       0       1m30s   -                 -
default          1/-      1       0       1.0s    250ms, p99 1m15s  1h23m, p99 2d07h

Running (2)
ID                              LANE     STATE    FOR    PROGRESS
g-a1_2026-11-22_11-00-00_p1_r1  default  running  3h00m  - (stalled)
g-c3_2026-11-22_11-00-00_p1_r3  cookie   running  1m30s  3/20 LOAD?[2J

Waiting (3)
ID                              LANE     STATE          FOR    WHY
g-f6_2026-11-22_11-00-00_p1_r6  cookie   failed_manual  1m30s  a person must act: jobdir show g-f6_2026-11-22_11-00-00_p1_r6
g-d4_2026-11-22_11-00-00_p1_r4  cookie   queued         1m30s  key "k" is taken, held by g-c3_2026-11-22_11-00-00_p1_r3
g-b2_2026-11-22_11-00-00_p1_r2  default  queued         1.0s   lane "default" is full`
	if got := strings.Join(v.lines(), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Whatever the size of the terminal, nothing is wrapped and nothing scrolls.
func TestTopFitsEveryTerminal(t *testing.T) {
	t.Parallel()
	m := topKnown(t)
	for width := 1; width < 130; width += 7 {
		for height := 1; height < 40; height++ {
			v := &view{
				address: "unix:/s", now: topNow, stats: topStats(), model: m, width: width, height: height,
				note: "the daemon is away",
			}
			lines := v.lines()
			if len(lines) > height {
				t.Fatalf("%d lines in %d", len(lines), height)
			}
			for _, line := range lines {
				if len([]rune(line)) > width {
					t.Fatalf("%q is wider than %d", line, width)
				}
			}
		}
	}
	small := &view{now: topNow, stats: topStats(), model: m, width: 120, height: 15}
	if got := strings.Join(small.lines(), "\n"); !strings.Contains(got, "Running (1 of 2)") ||
		!strings.Contains(got, "Waiting (2 of 3)") {
		t.Errorf("in 15 lines:\n%s", got)
	}
}

func TestTopListsAgainAfterAGap(t *testing.T) {
	t.Parallel()
	m := topKnown(t)
	if m.stale {
		t.Fatal("nothing is missing yet")
	}
	m.take(&client.Event{Gap: &client.EventGap{From: 1, To: 2}}, topNow)
	if !m.stale {
		t.Fatal("events are missing, and nothing is listed again")
	}
	m.list(nil)
	if m.stale || len(m.busy())+len(m.idle()) > 0 {
		t.Fatalf("%+v", m)
	}
	if starts, ends := m.rates(topNow.Add(rateWindow + 1)); starts != 0 || ends != 0 {
		t.Errorf("rates %v and %v", starts, ends)
	}
}

func TestShortly(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0ms", 999 * time.Millisecond: "999ms", 1500 * time.Millisecond: "1.5s", 59 * time.Second: "59s",
		61 * time.Second:   "1m01s",
		3599 * time.Second: "59m59s", 25 * time.Hour: "1d01h", 23*time.Hour + 59*time.Minute: "23h59m",
	} {
		if got := term.Shortly(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}

// A row shows for an operation that waits for a person the step and the reason, and for work with steps the
// progress of the running step.
func TestTopShowsSteps(t *testing.T) {
	t.Parallel()
	m := newModel(topNow)
	total, items := int64(4), int64(10)
	m.list([]client.Operation{
		{ID: topID(t, "a1"), State: statefs.FailedManual, Attention: &statefs.Attention{
			Step: "split", Number: 2, Total: 5,
			Message: "it has no tracks",
		}},
		{ID: topID(t, "b2"), State: statefs.Running, Progress: &statefs.Progress{
			Done: 1, Total: &total, Phase: "ingested", Step: &statefs.StepProgress{
				Name: "split", Done: 5,
				Total: &items, Phase: "CUT",
			},
		}},
		{ID: topID(t, "c3"), State: statefs.Running},
	})
	failed := topEvent(t, "c3", statefs.Running, statefs.FailedManual)
	failed.Error = &statefs.Fault{Code: "exit_code", Message: "exit code 77"}
	m.take(failed, topNow)
	text := strings.Join((&view{now: topNow, stats: topStats(), model: m}).lines(), "\n")
	for _, want := range []string{
		"1/4 ingested, split 5/10 CUT (37%)",
		"step 2 / 5 split: it has no tracks: jobdir show g-a1_", "exit code 77: jobdir show g-c3_",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	m.take(topEvent(t, "a1", statefs.FailedManual, statefs.Queued), topNow)
	if m.rows[topID(t, "a1")].Why != "" {
		t.Error("it still says why it waited for a person")
	}
}
