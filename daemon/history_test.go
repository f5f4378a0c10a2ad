package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// ends returns the rows of the feed after a number, without waiting for more.
func (b *bench) ends(after uint64) []history.Row {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	cancel() // do not wait
	rows, _, err := b.daemon.history.Finished(ctx, after, 10_000)
	must(b.t, err)
	return rows
}

// awaitEnds waits until the feed has n rows after a number.
func (b *bench) awaitEnds(after uint64, count int) (rows []history.Row) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	for len(rows) < count && ctx.Err() == nil {
		more, last, err := b.daemon.history.Finished(ctx, after, 10_000)
		must(b.t, err)
		rows, after = append(rows, more...), last
	}
	if len(rows) != count {
		b.t.Fatalf("the feed has %d rows, want %d: %+v", len(rows), count, rows)
	}
	return rows
}

func (b *bench) listed(q history.Query) []statefs.ID {
	b.t.Helper()
	q.Limit = 200
	var live []history.Packed
	for _, l := range b.daemon.Live() {
		live = append(live, l.Row)
	}
	page, err := b.daemon.history.List(b.t.Context(), &q, &history.LiveView{Index: new(history.LiveIndex), Rows: live})
	must(b.t, err)
	var ids []statefs.ID
	for _, e := range page.Entries {
		ids = append(ids, e.Row.ID)
	}
	if len(ids) != page.Total {
		b.t.Errorf("%d of %d", len(ids), page.Total)
	}
	return ids
}

func TestEndsAreNumbered(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	held := b.submit("wait", "{}")
	b.awaitState(held, statefs.Running)
	var ids []statefs.ID
	for range 3 {
		id := b.submit("count", "{}")
		b.awaitEnd(id)
		ids = append(ids, id)
	}
	for i, row := range b.awaitEnds(0, 3) {
		rec, err := b.tree.ReadRecord(row.ID)
		if err != nil || row.ID != ids[i] || rec.FinishedSeq != row.Number ||
			row.Status != statefs.Completed || row.Bytes == 0 {
			t.Errorf("%+v, %v", row, err)
		}
	}
	slices.Reverse(ids)
	if got := b.listed(history.Query{}); !slices.Equal(got, append(slices.Clone(ids), held)) {
		t.Errorf("%v", got)
	}
	must(t, b.stop())
	b.start()
	if rows := b.ends(0); len(rows) != 3 {
		t.Errorf("after a start: %+v", rows)
	}
}

// TestStopsForAPersonAreInTheFeed: a stop for a person and the end are in the feed, and a restart
// in between repeats neither.
func TestStopsForAPersonAreInTheFeed(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	id := b.submit("wait", "{}")
	b.awaitState(id, statefs.Running)
	must(t, b.stop())
	path := filepath.Join(b.dir, "operations", id.Day(), id.String()+".json")
	must(t, os.WriteFile(path, []byte("{"), 0o640))
	b.start()
	b.awaitState(id, statefs.FailedManual)
	stop := b.awaitEnds(0, 1)[0]
	rec, err := b.tree.ReadRecord(id)
	if err != nil || !stop.NeedsPerson || stop.ID != id || rec.NeedsPersonSeq != stop.Number {
		t.Fatalf("%+v, %+v, %v", stop, rec, err)
	}
	must(t, b.stop())
	b.start()
	if rows := b.ends(0); len(rows) != 1 || rows[0].Number != stop.Number {
		t.Errorf("after a start: %+v", rows)
	}
	b.touch(id, statefs.Cancel)
	b.awaitEnd(id)
	if end := b.awaitEnds(stop.Number, 1)[0]; end.NeedsPerson || end.Status != statefs.Cancelled ||
		end.EarlierStop != stop.Number {
		t.Errorf("%+v", end)
	}
}

func TestPinAndDelete(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	ctx := t.Context()
	id := b.submit("wait", "{}")
	b.awaitState(id, statefs.Running)
	var held *history.HeldError
	if err := b.daemon.Delete(ctx, id); !errors.As(err, &held) || !strings.Contains(held.Reason, "running") {
		t.Errorf("a live one: %v", err)
	}
	must(t, b.daemon.Pin(ctx, id, true))
	b.touch(id, statefs.Cancel)
	b.awaitEnd(id)
	b.awaitEnds(0, 1)
	if err := b.daemon.Delete(ctx, id); !errors.As(err, &held) || !strings.Contains(held.Reason, "pinned") {
		t.Errorf("a pinned one: %v", err)
	}
	must(t, b.daemon.Pin(ctx, id, false))
	must(t, b.daemon.Delete(ctx, id))
	if left, _ := filepath.Glob(filepath.Join(b.dir, "operations", id.Day(), id.String()+"*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if err := b.daemon.Delete(ctx, id); !errors.Is(err, history.ErrUnknown) {
		t.Errorf("again: %v", err)
	}
	if rows := b.ends(0); len(rows) != 0 {
		t.Errorf("the feed: %+v", rows)
	}
}

// TestRetryNotYetInHand: while a retry is acknowledged but not yet seen by the daemon, the
// operation that it repeats is kept.
func TestRetryNotYetInHand(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	old := b.submit("wait", "{}")
	b.touch(old, statefs.Cancel)
	b.awaitEnd(old)
	b.awaitEnds(0, 1)
	must(t, b.stop())
	again, err := publish(b.tree, statefs.Submission{Group: "test", Job: "wait", RetryOf: &old})
	must(t, err)
	guards, err := b.unstarted().retentionGuards()
	if err != nil || guards.Referred[old].By != again.ID || guards.Referred[again.ID].By == old {
		t.Errorf("%+v, %v", guards, err)
	}
}

// TestRetentionRuns: the daemon prunes at its start.
func TestRetentionRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	for range 3 {
		b.awaitEnd(b.submit("count", "{}"))
	}
	last := b.submit("count", "{}")
	b.awaitEnd(last)
	must(t, b.stop())
	b.config.Retention = history.Retention{Count: 1}
	b.start()
	// files are removed last
	b.await("only the last one is left", func() bool {
		return slices.Equal(b.listed(history.Query{}),
			[]statefs.ID{last})
	})
}

// feedAfter makes the child print the feed after this number.
const feedAfter = "JOBDIR_TEST_FEED_AFTER"

// printFeed is a consumer of the feed that prints each number and ID.
func printFeed(ctx context.Context, d *Daemon, after uint64) error {
	select {
	case <-d.Ready():
	case <-ctx.Done():
		return nil
	}
	for ctx.Err() == nil {
		rows, last, err := d.history.Finished(ctx, after, 5)
		if errors.Is(err, history.ErrNotReady) {
			select {
			case <-d.history.Built():
			case <-ctx.Done():
			}
			continue
		}
		if err != nil {
			return err
		}
		for _, row := range rows {
			fmt.Println(row.Number, row.ID)
		}
		after = last
	}
	return nil
}

// startFeedChild starts a daemon in a process of its own that prints the feed.
func startFeedChild(t *testing.T, dir string, after uint64) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	child := exec.CommandContext(t.Context(), "/proc/self/exe") // killed when the test ends early
	child.Env = append(os.Environ(), daemonDir+"="+dir, feedAfter+"="+strconv.FormatUint(after, 10))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	return child, bufio.NewScanner(out)
}

// TestKillsAndTheFeed kills daemons while operations end, and follows the feed from the last number
// seen: each end appears once.
func TestKillsAndTheFeed(t *testing.T) {
	t.Parallel()
	b := prepare(t, handlerJobs+"---"+commandJobs, testHandlers)
	cycles := prooftest.Count(5, 20, 20)
	seen := make(map[string]int)
	var last uint64
	var submitted []statefs.ID
	follow := func(lines *bufio.Scanner, upTo int) {
		for n := 0; n < upTo && lines.Scan(); n++ {
			var number uint64
			var id string
			if _, err := fmt.Sscan(lines.Text(), &number, &id); err != nil {
				continue // cut off by the kill
			}
			if number <= last {
				t.Errorf("number %d after %d", number, last)
			}
			last = number
			seen[id]++
		}
	}
	for cycle := range cycles {
		child, lines := startFeedChild(t, b.dir, last)
		for range 10 {
			submitted = append(submitted, b.submit("count", "{}"))
		}
		follow(lines, rand.IntN(10)) // kill it now
		if cycle%5 == 4 {
			_ = os.Remove(filepath.Join(b.dir, history.FileName))
		}
		must(t, child.Process.Kill())
		follow(lines, 1000) // the consumer has what the daemon printed before it died
		_ = child.Wait()    // it was killed
	}
	b.start()
	for _, id := range submitted {
		b.awaitEnd(id)
	}
	for _, row := range b.awaitEnds(last, len(submitted)-len(seen)) {
		seen[row.ID.String()]++
	}
	for _, id := range submitted {
		if seen[id.String()] != 1 {
			t.Errorf("%s came %d times", id, seen[id.String()])
		}
	}
	if ids := b.listed(history.Query{Job: "count"}); len(ids) != len(submitted) {
		t.Errorf("%d in the list", len(ids))
	}
}
