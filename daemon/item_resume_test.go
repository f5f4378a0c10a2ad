package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

const resumeJobs = `
group: test
name: items
items: {range: [1, 4]}
run: [sh, -c, 'if [ $1 = 2 ]; then exit 1; fi; if [ $1 = 3 ]; then echo waits; until test -e $JOBDIR_ARTIFACTS/go; do sleep 0.02; done; fi', sh, "${item}"]
---
group: test
name: names
handler: names
---
group: test
name: never_again
restart: fail
run: [sh, -c, 'echo begun; exec sleep 600']
---
group: test
name: never_again_handler
restart: fail
handler: wait
`

func resumeHandlers(begun *atomic.Int64) work.Handlers {
	return work.Handlers{"names": namesHandler(begun), "wait": {Run: waitHandler}}
}

// namesHandler does three items and checks which of them are finished. In its first run it waits in
// the middle of the second.
func namesHandler(begun *atomic.Int64) work.Handler {
	return work.Handler{Run: func(_ context.Context, op *work.Op) error {
		for i, name := range []string{"a", "b", "c"} {
			if op.Finished(name) {
				continue
			}
			begun.Add(1)
			item := op.Item(i+1, 3, name)
			if name == "b" && op.RunNumber() == 1 {
				for {
					if err := op.Sleep(patience); err != nil {
						return err
					}
				}
			}
			if name == "a" {
				item.Fail(errors.New("no good"))
			} else {
				item.OK()
			}
		}
		return nil
	}}
}

// Items finished before a restart are not done again, and appear once in the log and the footer.
func TestItemsGoOnAfterARestart(t *testing.T) {
	t.Parallel()
	b := setup(t, resumeJobs, resumeHandlers(new(atomic.Int64)))
	id := b.submit("items", `{}`)
	b.await("the third item runs", func() bool {
		log, err := os.ReadFile(b.tree.LogPath(id))
		return err == nil && strings.HasSuffix(string(log), "waits\n")
	})
	must(t, b.stop())
	torn, err := os.OpenFile(b.tree.ItemsPath(id), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = torn.WriteString(`{"item":3,"run":1,"ok":tr`)
	must(t, errors.Join(err, torn.Close()))
	b.start()
	b.await("the third item runs again", func() bool { return strings.Count(b.log(id), "waits\n") == 2 })
	must(t, os.WriteFile(filepath.Join(b.tree.ArtifactsPath(id), "go"), nil, 0o640))
	rec := b.awaitEnd(id)
	b.wantLog(id, "[ 1 / 4 ] Processing '1'...", "  OK.", "[ 2 / 4 ] Processing '2'...", "  FAIL: exit code 1",
		"[ 3 / 4 ] Processing '3'...", "waits",
		"  Run 2 begins.", "  Goes on after 2 finished items.", "[ 3 / 4 ] Processing '3'...", "waits", "  OK.",
		"[ 4 / 4 ] Processing '4'...", "  OK.")
	want := `{"result":"partial","state":"completed","total":4,"processed":3,"failed":1,"artifacts":["go"],` +
		`"processed_files":[{"filename":"1"},{"filename":"3"},{"filename":"4"}],"failed_files":[{"filename":"2","error":"exit code 1"}]}`
	if string(rec.Footer) != want {
		t.Errorf("footer\n%s\nwant\n%s", rec.Footer, want)
	}
	if rec.Run != 2 || rec.Interrupts != 1 || rec.Attempts != 1 {
		t.Errorf("run %d, interrupts %d, attempts %d", rec.Run, rec.Interrupts, rec.Attempts)
	}
}

// An operation that is cancelled before it could continue has its finished items in its footer.
func TestCancelledBeforeItWentOn(t *testing.T) {
	t.Parallel()
	b := setup(t, resumeJobs, resumeHandlers(new(atomic.Int64)))
	id := b.submit("items", `{}`)
	b.await("the third item runs", func() bool {
		log, err := os.ReadFile(b.tree.LogPath(id))
		return err == nil && strings.HasSuffix(string(log), "waits\n")
	})
	must(t, b.stop())
	b.touch(id, statefs.Cancel)
	b.start()
	if rec := b.awaitEnd(id); rec.Status != statefs.Cancelled || rec.Processed != 1 || rec.FailedN != 1 ||
		!strings.Contains(string(rec.Footer), `"total":4,"processed":1,"failed":1,"processed_files":[{"filename":"1"}]`) {
		t.Errorf("%s, footer %s", rec.Status, rec.Footer)
	}
}

// A handler that calls Finished continues where it was, also when it was paused over the restart.
func TestHandlerGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	var begun atomic.Int64
	b := setup(t, resumeJobs, resumeHandlers(&begun))
	id := b.submit("names", `{}`)
	b.await("the second item is begun", func() bool { return begun.Load() == 2 })
	b.touch(id, statefs.Pause)
	b.awaitState(id, statefs.Paused)
	for range 2 {
		must(t, b.stop())
		b.start()
		b.awaitState(id, statefs.Paused)
	}
	b.touch(id, statefs.Resume)
	rec := b.awaitEnd(id)
	if rec.Result != statefs.Partial || rec.Processed != 2 || rec.FailedN != 1 || begun.Load() != 4 {
		t.Errorf("result %s, processed %d, failed %d, begun %d", rec.Result, rec.Processed, rec.FailedN, begun.Load())
	}
	if log := b.log(id); strings.Count(log, "'a'") != 1 || !strings.Contains(log, "  Goes on after 1 finished item.\n") {
		t.Errorf("log\n%s", log)
	}
}

// Work with restart "fail" does not start again, whether the daemon stopped or was killed.
func TestCutOffWorkWithRestartFailFails(t *testing.T) {
	t.Parallel()
	b := setup(t, resumeJobs, resumeHandlers(new(atomic.Int64)))
	stopped := []statefs.ID{b.submit("never_again", `{}`), b.submit("never_again_handler", `{}`)}
	for _, id := range stopped {
		b.awaitState(id, statefs.Running)
	}
	must(t, b.stop())
	for _, id := range stopped {
		rec, err := b.tree.ReadRecord(id)
		if err != nil || rec.Status != statefs.Failed || rec.Error == nil || rec.Error.Code != "cut_off" ||
			rec.Interrupts != 1 {
			t.Errorf("%s: %v %+v", id, err, rec)
		}
	}
	killed := b.submit("never_again_handler", `{}`)
	o, err := statefs.Own(b.tree)
	must(t, err)
	rec, err := o.ReadRecord(killed)
	must(t, err)
	must(t, rec.Apply(statefs.Queued, statefs.CauseStart, rec.CreatedAt))
	rec.Run, rec.Starts = 1, 1
	must(t, o.WriteRecord(rec))
	must(t, o.Move(killed, statefs.Queued, statefs.Running))
	must(t, o.Release())
	b.start()
	if rec := b.awaitEnd(killed); rec.Status != statefs.Failed || rec.Error == nil || rec.Error.Code != "cut_off" {
		t.Errorf("%s %+v", rec.Status, rec.Error)
	}
}

// A retry of failed items does only those and keeps the successful ones.
func TestRetryOfFailedItems(t *testing.T) {
	t.Parallel()
	var begun atomic.Int64
	b := setup(t, resumeJobs, resumeHandlers(&begun))
	first := b.submit("items", `{}`)
	b.await("the third item runs", func() bool {
		log, err := os.ReadFile(b.tree.LogPath(first))
		return err == nil && strings.HasSuffix(string(log), "waits\n")
	})
	b.touch(first, statefs.Cancel)
	b.awaitEnd(first)
	for _, test := range []struct {
		failedItems bool
		log         []string
		processed   int
	}{
		{true, []string{"  Goes on after 1 finished item.", "[ 2 / 4 ] Processing '2'...", "  FAIL: exit code 1"}, 1},
		{false, []string{
			"  Goes on after 1 finished item.", "[ 2 / 4 ] Processing '2'...", "  FAIL: exit code 1",
			"[ 3 / 4 ] Processing '3'...", "waits", "  OK.",
			"[ 4 / 4 ] Processing '4'...", "  OK.",
		}, 3},
	} {
		rec, err := publish(b.tree, statefs.Submission{
			Group: "test", Job: "items", RetryOf: &first, FailedItems: test.failedItems,
		})
		must(t, err)
		if !test.failedItems {
			b.await("the third item runs", func() bool {
				log, err := os.ReadFile(b.tree.LogPath(rec.ID))
				return err == nil && strings.HasSuffix(string(log), "waits\n")
			})
			must(t, os.WriteFile(filepath.Join(b.tree.ArtifactsPath(rec.ID), "go"), nil, 0o640))
		}
		end := b.awaitEnd(rec.ID)
		b.wantLog(rec.ID, test.log...)
		if end.Result != statefs.Partial || end.Processed != test.processed || end.FailedN != 1 || end.RetryOf == nil ||
			*end.RetryOf != first {
			t.Errorf("result %s, processed %d, failed %d, retry of %v", end.Result, end.Processed, end.FailedN, end.RetryOf)
		}
	}
}

// A retry request that is older than the failure is ignored.
func TestRetryOfWhatWaitsForAPerson(t *testing.T) {
	t.Parallel()
	b := setup(t, deathJobs, nil)
	id := b.submit("dies_always", `{}`)
	b.awaitState(id, statefs.FailedManual)
	b.daemon.reconcileQueue.wait()
	old := filepath.Join(b.tree.JobsDir(), statefs.RequestName(id, statefs.Retry))
	whole := filepath.Join(b.tree.Dir(), "tmp", "request") // the name appears with its content, as from any client
	must(t, os.WriteFile(whole, nil, 0o640))
	written := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	must(t, errors.Join(os.Chtimes(whole, written, written), os.Rename(whole, old)))
	b.await("the old request is consumed", func() bool { return !b.exists(statefs.RequestName(id, statefs.Retry)) })
	b.daemon.reconcileQueue.wait()
	if !b.exists(statefs.MarkerName(id, statefs.FailedManual)) {
		t.Fatal("an old request counted")
	}
	b.touch(id, statefs.Retry)
	b.await("it failed once more", func() bool {
		rec, err := b.tree.ReadRecord(id)
		return err == nil && rec.Run == 10 && rec.Status == statefs.FailedManual
	})
	if log := b.log(id); strings.Count(log, lineRetry) != 1 ||
		!strings.Contains(log, lineNoEffect(statefs.Retry, statefs.FailedManual)) {
		t.Errorf("log\n%s", log)
	}
}
