package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// ways are the ways to make a request.
var ways = map[string]func(b *bench, id statefs.ID, ask statefs.Action){
	"touch": (*bench).touch,
	"endpoint": func(b *bench, id statefs.ID, ask statefs.Action) {
		if err := b.tree.Request(b.t.Context(), id, ask, nil); err != nil {
			b.t.Error(err)
		}
	},
	"mv into place": func(b *bench, id statefs.ID, ask statefs.Action) {
		temp := filepath.Join(b.dir, "tmp", string(ask))
		if err := os.WriteFile(temp, []byte("2025-11-26T13:22:00.000000+01:00\n"), 0o640); err != nil {
			b.t.Error(err)
		}
		if err := os.Rename(temp, filepath.Join(b.tree.JobsDir(), statefs.RequestName(id, ask))); err != nil {
			b.t.Error(err)
		}
	},
}

// TestRequestInEveryState requests pause, resume and cancel in the states running and paused, in
// each way.
func TestRequestInEveryState(t *testing.T) {
	t.Parallel()
	jobs := handlerJobs + "---\n{group: test, name: sleep, run: [sleep, \"3600\"]}\n"
	b := setup(t, jobs, testHandlers)
	states := map[string]func(id statefs.ID){
		"running": func(statefs.ID) {},
		"paused": func(id statefs.ID) {
			b.touch(id, statefs.Pause)
			b.awaitState(id, statefs.Paused)
		},
	}
	want := map[string]map[statefs.Action]statefs.State{
		"running": {statefs.Pause: statefs.Paused, statefs.Resume: statefs.Running, statefs.Cancel: ""},
		"paused":  {statefs.Pause: statefs.Paused, statefs.Resume: statefs.Running, statefs.Cancel: ""},
	}
	for _, job := range []string{"wait", "sleep"} {
		for way, ask := range ways {
			for state, bring := range states {
				for asked, expected := range want[state] {
					t.Run(fmt.Sprintf("%s/%s/%s while %s", job, way, asked, state), func(t *testing.T) {
						id := b.submit(job, `{}`)
						b.awaitState(id, statefs.Running)
						bring(id)
						ask(b, id, asked)
						if expected == "" {
							if rec := b.awaitEnd(id); rec.Status != statefs.Cancelled {
								t.Errorf("status %s", rec.Status)
							}
							return
						}
						b.await("the request is consumed", func() bool { return !b.exists(statefs.RequestName(id, asked)) })
						b.awaitState(id, expected)
						b.touch(id, statefs.Cancel)
						b.awaitEnd(id)
					})
				}
			}
		}
	}
	b.daemon.reconcileQueue.wait()
	if left, _ := os.ReadDir(filepath.Join(b.dir, "taken")); len(left) != 0 {
		t.Errorf("requests left in taken/: %v", left)
	}
}

func TestTheLastRequestWinsAndCancelBeatsAll(t *testing.T) {
	t.Parallel()
	b := prepare(t, handlerJobs, testHandlers)
	// The requests exist before the daemon starts. Only their content tells their order.
	held, cancelled := b.submit("wait", `{}`), b.submit("wait", `{}`)
	written := time.Date(2025, 11, 26, 12, 22, 0, 0, time.UTC)
	put := func(id statefs.ID, ask statefs.Action, at string) {
		name := filepath.Join(b.tree.JobsDir(), statefs.RequestName(id, ask))
		must(t, os.WriteFile(name, []byte(at+"\n"), 0o640))
		must(t, os.Chtimes(name, written, written))
	}
	put(held, statefs.Resume, "2025-11-26T13:22:00.000000+01:00")
	put(held, statefs.Pause, "2025-11-26T13:22:00.000001+01:00")
	put(cancelled, statefs.Cancel, "2025-11-26T13:22:00.000000+01:00")
	put(cancelled, statefs.Resume, "2025-11-26T13:23:00.000000+01:00")
	b.start()
	b.awaitState(held, statefs.Paused)
	if rec := b.awaitEnd(cancelled); rec.Status != statefs.Cancelled || rec.Run != 0 {
		t.Errorf("status %s, run %d: a cancelled operation in the queue must never start", rec.Status, rec.Run)
	}
	b.wantLog(held, lineNoEffect(statefs.Resume, statefs.Queued), linePause)
	b.touch(held, statefs.Resume)
	b.awaitState(held, statefs.Running)
}

// A request with a time in the future counts as of the time of its file, so a later request wins.
func TestARequestFromTheFutureDoesNotWin(t *testing.T) {
	t.Parallel()
	b := prepare(t, handlerJobs, testHandlers)
	id := b.submit("wait", `{}`)
	pause, resume := filepath.Join(b.tree.JobsDir(), statefs.RequestName(id, statefs.Pause)),
		filepath.Join(b.tree.JobsDir(), statefs.RequestName(id, statefs.Resume))
	must(t, os.WriteFile(pause, []byte("2099-01-01T00:00:00.000000Z\n"), 0o640))
	must(t, os.WriteFile(resume, nil, 0o640))
	earlier := time.Now().Add(-time.Minute)
	must(t, os.Chtimes(pause, earlier, earlier))
	b.start()
	b.awaitState(id, statefs.Running)
	b.daemon.reconcileQueue.wait()
	if !b.exists(statefs.MarkerName(id, statefs.Running)) {
		t.Error("the older request won")
	}
}

// A request without an effect is consumed and logged.
func TestRequestsWithoutEffectAreLogged(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	id := b.submit("wait", `{}`)
	b.awaitState(id, statefs.Running)
	ask := func(ask statefs.Action) {
		b.touch(id, ask)
		b.await("the request is consumed", func() bool { return !b.exists(statefs.RequestName(id, ask)) })
		b.daemon.reconcileQueue.wait()
	}
	ask(statefs.Resume)
	ask(statefs.Approve)
	ask(statefs.Pause)
	b.awaitState(id, statefs.Paused) // a pause requested before that would join the first
	ask(statefs.Pause)
	b.wantLog(id, "  Resume requested while running: nothing to do.", "  Approve requested while running: nothing to do.",
		linePause, "  Pause requested while paused: nothing to do.")
	if left := b.taken(); len(left) != 0 {
		t.Errorf("taken/ holds %q", left)
	}
	ask(statefs.Cancel)
	b.awaitEnd(id)
	sealed := b.log(id)
	b.touch(id, statefs.Pause)
	b.daemon.reconcileQueue.wait()
	if b.log(id) != sealed {
		t.Errorf("the sealed log became %q", b.log(id))
	}
}

func TestHandMoves(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	id := b.submit("wait", `{}`)
	b.awaitState(id, statefs.Running)
	running, paused := statefs.MarkerName(id, statefs.Running), statefs.MarkerName(id, statefs.Paused)

	b.mv(running, paused)
	b.await("the pause is in the log", func() bool { return b.recordStatus(id) == statefs.Paused })
	b.mv(paused, running)
	b.await("the resume is taken", func() bool { return b.recordStatus(id) == statefs.Running })
	b.wantLog(id, linePause, lineResume)

	for _, wrong := range []string{
		statefs.MarkerName(id, statefs.FailedManual), statefs.MarkerName(id, statefs.Scheduled), running + ".bak",
		id.String() + ".ruNning", "somewhere-else", id.String(),
	} {
		b.mv(running, wrong)
		b.await(wrong+" is put back", func() bool { return b.exists(running) && !b.exists(wrong) })
	}
	second := filepath.Join(b.tree.JobsDir(), paused)
	if err := os.WriteFile(second, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	b.await("the second marker is removed", func() bool { return !b.exists(paused) })
	if err := os.Link(filepath.Join(b.tree.JobsDir(), running), second); err != nil {
		t.Fatal(err)
	}
	b.await("the second link is removed", func() bool { return !b.exists(paused) })
	if !b.exists(running) {
		t.Error("the marker is gone")
	}
	if got := b.daemon.Health().Counters["put_back"]; got != 8 {
		t.Errorf("put_back %d, want 8", got)
	}
}

// Renaming a queued marker to paused is undone by the opposite rename. Work that has started stays
// paused.
func TestHandPauseIsUndoneByHand(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	lane := statefs.LaneFile{Lane: statefs.DefaultLane, Control: statefs.LanePaused}
	must(t, b.tree.Lanes.Hold(lane, statefs.LaneHold{}))
	b.daemon.Lanes.Apply()
	id := b.submit("wait", `{}`)
	queued, paused := statefs.MarkerName(id, statefs.Queued), statefs.MarkerName(id, statefs.Paused)
	b.awaitKnown(id, statefs.Queued)
	for range 2 {
		b.mv(queued, paused)
		b.await("the pause is taken", func() bool { return b.recordStatus(id) == statefs.Paused })
		b.mv(paused, queued)
		b.await("the resume is taken", func() bool { return b.recordStatus(id) == statefs.Queued })
	}
	b.wantLog(id, linePause, lineResume, linePause, lineResume)
	_, err := b.tree.Lanes.Release(lane)
	must(t, err)
	b.awaitState(id, statefs.Running)

	b.mv(statefs.MarkerName(id, statefs.Running), paused)
	b.await("the pause is taken", func() bool { return b.recordStatus(id) == statefs.Paused })
	b.mv(paused, queued)
	b.await("it is put back", func() bool { return b.exists(paused) && !b.exists(queued) })
	if got := b.daemon.Health().Counters["put_back"]; got != 1 {
		t.Errorf("put_back %d, want 1", got)
	}
}

func (b *bench) recordStatus(id statefs.ID) statefs.State {
	rec, err := b.tree.ReadRecord(id)
	if err != nil {
		b.t.Fatal(err)
	}
	return rec.Status
}

func TestRemovedMarkerCancels(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	stays, goes := b.submit("wait", `{}`), b.submit("wait", `{}`)
	b.awaitState(stays, statefs.Running)
	b.awaitState(goes, statefs.Running)
	if err := os.Remove(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(goes, statefs.Running))); err != nil {
		t.Fatal(err)
	}
	rec := b.awaitEnd(goes)
	if rec.Status != statefs.Cancelled || rec.Transitions[len(rec.Transitions)-1].Cause != statefs.CauseMarkerMissing {
		t.Errorf("record %+v", rec)
	}
	b.wantLog(goes, lineCancel)
	if !b.exists(statefs.MarkerName(stays, statefs.Running)) {
		t.Error("the other one was touched")
	}
}
