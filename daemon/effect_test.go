package daemon

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/effect"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

// pendingRequest is a request whose outcome a client waits for.
type pendingRequest struct {
	b      *bench
	action statefs.Action
	waiter *effect.Waiter
}

// make makes a request and waits for its outcome, as control does.
func (b *bench) make(id statefs.ID, action statefs.Action, args string) *pendingRequest {
	b.t.Helper()
	p := &pendingRequest{b, action, b.daemon.AwaitRequest(id, action)}
	must(b.t, b.tree.RequestThen(id, action, json.RawMessage(args), p.waiter.Made))
	return p
}

// makeSlowly is make for a client that learns that its file exists when it calls made.
func (b *bench) makeSlowly(id statefs.ID, action statefs.Action, args string) (p *pendingRequest, made func()) {
	b.t.Helper()
	p = &pendingRequest{b, action, b.daemon.AwaitRequest(id, action)}
	var line json.RawMessage
	must(b.t, b.tree.RequestThen(id, action, json.RawMessage(args), func(args json.RawMessage) { line = args }))
	return p, func() { p.waiter.Made(line) }
}

func (p *pendingRequest) want(state statefs.State, took bool) {
	p.b.t.Helper()
	select {
	case got := <-p.waiter.C:
		if want := (effect.Outcome{TookEffect: took, State: state}); got != want {
			p.b.t.Errorf("%s: %+v, want %+v", p.action, got, want)
		}
	case <-time.After(patience):
		p.b.t.Fatalf("%s has no outcome", p.action)
	}
}

// wantNone fails the test if the request has an outcome when the daemon has nothing more to do.
func (p *pendingRequest) wantNone() {
	p.b.t.Helper()
	p.b.daemon.reconcileQueue.wait()
	select {
	case got := <-p.waiter.C:
		p.b.t.Errorf("%s: %+v, want no outcome yet", p.action, got)
	default:
	}
}

// The outcome of a request is what the daemon has decided and made durable.
func TestOutcomesOfRequests(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	id := b.submit("wait", `{}`)
	b.awaitState(id, statefs.Running)
	b.make(id, statefs.Prioritize, `{"priority": 7}`).want(statefs.Running, false)
	b.make(id, statefs.Pause, "").want(statefs.Paused, true)
	b.make(id, statefs.Prioritize, `{"priority": 7}`).want(statefs.Paused, true)
	if rec, err := b.tree.ReadRecord(id); err != nil || rec.Priority != 7 {
		t.Errorf("the priority is not durable: %+v, %v", rec, err)
	}
	b.make(id, statefs.Prioritize, "").want(statefs.Paused, true) // it is the first already
	b.make(id, statefs.Prioritize, `{"priority": "high"}`).want(statefs.Paused, false)
	b.make(id, statefs.Resume, "").want(statefs.Running, true)
	b.make(id, statefs.Retry, "").want(statefs.Running, false)
	b.make(id, statefs.Cancel, "").want(statefs.Cancelled, true)

	stays := b.submit("wait", `{}`)
	b.awaitState(stays, statefs.Running)
	b.make(stays, statefs.Pause, "").want(statefs.Paused, true)
	must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(stays, statefs.Paused))))
	b.awaitEnd(stays)
	b.daemon.waiters.Settle(id, func(effect.Request) (effect.Outcome, bool) {
		t.Error("a client that has its answer still waits")
		return effect.Outcome{}, false
	})
}

// A request has its outcome when its effect comes, or cannot come any more: because another request or the end of the
// work came before it.
func TestOutcomesOfWorkThatStopsLate(t *testing.T) {
	t.Parallel()
	begun, letGo := make(chan struct{}, 1), make(chan struct{})
	b := setup(t, busyJobs, busyHandlers(begun, letGo))
	id := b.submit("busy", `{}`)
	<-begun
	first, again := b.make(id, statefs.Pause, ""), b.make(id, statefs.Pause, "")
	first.wantNone()
	again.wantNone()
	b.make(id, statefs.Resume, "").want(statefs.Running, true)
	first.want(statefs.Running, false)
	again.want(statefs.Running, false)
	late := b.make(id, statefs.Pause, "")
	late.wantNone()
	cancel := b.make(id, statefs.Cancel, "")
	cancel.wantNone()
	force := b.make(id, statefs.ForceCancel, "") // replaces the cancel, whose file goes
	force.wantNone()
	cancel.wantNone()
	b.make(id, statefs.Resume, "").want(statefs.Running, false)
	close(letGo)
	cancel.want(statefs.Cancelled, true)
	force.want(statefs.Cancelled, true)
	late.want(statefs.Cancelled, false)
}

// A client whose request is carried out durably has no outcome while another client's file of that request is there. If
// its wait ends then, its answer does not say that the effect is not durable.
func TestOutcomeSoFarOfADurableEffect(t *testing.T) {
	t.Parallel()
	begun, letGo := make(chan struct{}, 1), make(chan struct{})
	b := setup(t, busyJobs, busyHandlers(begun, letGo))
	id := b.submit("busy", `{}`)
	<-begun
	b.record(id, statefs.Running)
	pause := b.make(id, statefs.Pause, "")
	pause.wantNone()
	b.daemon.watchMu.Lock() // no event reaches the daemon
	b.daemon.reconcileQueue.enqueue(id)
	pause.wantNone() // and it looks for no request any more
	b.touch(id, statefs.Pause)
	settled, goOn := make(chan struct{}), make(chan struct{})
	b.daemon.pendingCallbacks.set(id, []func(*operation){func(*operation) { // in the reconcile that completes the pause
		b.daemon.atReconcile(id, func(*operation) { close(settled); <-goOn })
	}})
	close(letGo)
	<-settled
	if rec := b.record(id, statefs.Paused); pause.waiter.SoFar().TookEffect {
		t.Errorf("so far %+v, and the record is %s", pause.waiter.SoFar(), rec.Status)
	}
	select {
	case got := <-pause.waiter.C:
		t.Errorf("%+v although the file of another client is there", got)
	default:
	}
	b.daemon.watchMu.Unlock()
	close(goOn)
	pause.want(statefs.Paused, true)
}

// A person may move the marker while the work ends, or just before the daemon removes it. The daemon removes it all the
// same. A client that waits hears of the end afterwards: until then other readers see the state of the marker.
func TestOutcomeOfAnEndWhoseMarkerWasMoved(t *testing.T) {
	t.Parallel()
	begun, letGo := make(chan struct{}, 1), make(chan struct{})
	b := setup(t, busyJobs, busyHandlers(begun, letGo))
	for _, whileItEnds := range []bool{true, false} {
		id := b.submit("busy", `{}`)
		<-begun
		cancel := b.make(id, statefs.Cancel, "")
		cancel.wantNone()
		b.daemon.watchMu.Lock() // the event of the move comes after the end
		b.mv(statefs.MarkerName(id, statefs.Running), statefs.MarkerName(id, statefs.Paused))
		if whileItEnds {
			b.daemon.reconcileQueue.enqueue(id)
			cancel.wantNone()
		}
		letGo <- struct{}{}
		cancel.want(statefs.Cancelled, true)
		if b.exists(statefs.MarkerName(id, statefs.Paused)) {
			t.Error("the client was answered before the marker was removed")
		}
		b.daemon.watchMu.Unlock()
	}
}

// Work that ends by itself leaves a pause without an effect, and a resume with it.
func TestOutcomesOfWorkThatEndsByItself(t *testing.T) {
	t.Parallel()
	begun, ends := make(chan struct{}, 1), make(chan struct{})
	jobs := busyJobs + "---\ngroup: test\nname: short\nhandler: short\n" +
		"---\ngroup: test\nname: late\ndeadline: 1h\nhandler: late\n"
	b := setup(t, jobs, work.Handlers{
		"late": {Run: func(ctx context.Context, _ *work.Op) error {
			begun <- struct{}{}
			<-ends
			return ctx.Err()
		}},
		"busy": {Run: func(context.Context, *work.Op) error {
			begun <- struct{}{}
			<-ends
			return nil
		}},
		"short": {Run: func(_ context.Context, op *work.Op) error {
			begun <- struct{}{}
			<-ends
			return op.Checkpoint()
		}},
	})
	id := b.submit("busy", `{}`)
	<-begun
	pause := b.make(id, statefs.Pause, "")
	pause.wantNone()
	short := b.submit("short", `{}`)
	<-begun
	pauseShort := b.make(short, statefs.Pause, "")
	pauseShort.wantNone()
	late := b.submit("late", `{}`)
	<-begun
	pauseLate := b.make(late, statefs.Pause, "")
	pauseLate.wantNone()
	b.daemon.operation(late).deadlines.expiry = 1 // an hour later
	b.daemon.reconcileQueue.enqueue(late)
	pauseLate.wantNone()
	close(ends)
	pause.want(statefs.Completed, false)
	pauseLate.want(statefs.Failed, false)
	pauseShort.want(statefs.Paused, true)
	resume, made := b.makeSlowly(short, statefs.Resume, "")
	b.awaitEnd(short)
	made()
	resume.want(statefs.Completed, true)
}

// A pause or resume with nothing to do took effect if the operation is in the state that it asks for.
func TestOutcomesOfRequestsWithNothingToDo(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs+"---"+gateJobs+"---\ngroup: test\nname: person\nrun: [sh, -c, 'exit 77']\n", testHandlers)
	for _, row := range []struct {
		job    string
		state  statefs.State
		action statefs.Action
		took   bool
	}{
		{"wait", statefs.Running, statefs.Resume, true},
		{"wait", statefs.Paused, statefs.Pause, true},
		{"gate_first", statefs.WaitingApproval, statefs.Resume, true},
		{"gate_first", statefs.WaitingApproval, statefs.Pause, false},
		{"person", statefs.FailedManual, statefs.Resume, true},
		{"person", statefs.FailedManual, statefs.Pause, false},
	} {
		id := b.submit(row.job, `{}`)
		if row.state == statefs.Paused {
			b.awaitState(id, statefs.Running)
			b.make(id, statefs.Pause, "").want(statefs.Paused, true)
		}
		b.record(id, row.state)
		b.make(id, row.action, "").want(row.state, row.took)
		first, second := b.make(id, row.action, ""), b.make(id, row.action, "")
		first.want(row.state, row.took)
		second.want(row.state, row.took)
	}
}

// A request that was carried out took effect, also if its client is answered after a later request of the same
// action had nothing to do or was refused.
func TestOutcomesOfRequestsThatAreAnsweredLate(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs+"---"+gateJobsWithParam, testHandlers)
	id := b.submit("wait", `{}`)
	b.awaitState(id, statefs.Running)
	pause, made := b.makeSlowly(id, statefs.Pause, "")
	b.awaitState(id, statefs.Paused)
	b.make(id, statefs.Pause, "").want(statefs.Paused, true)
	pause.wantNone()
	made()
	pause.want(statefs.Paused, true)

	gate := b.submit("gated", `{}`)
	b.record(gate, statefs.WaitingApproval)
	set, made := b.makeSlowly(gate, statefs.Set, `{"values": {"params.n": 2}}`)
	set.wantNone()
	b.make(gate, statefs.Set, `{"values": {"params.n": 3}}`).want(statefs.WaitingApproval, true)
	b.make(gate, statefs.Set, `{"values": {"params.none": 3}}`).want(statefs.WaitingApproval, false)
	made()
	set.want(statefs.WaitingApproval, true)
	approve, made := b.makeSlowly(gate, statefs.Approve, `{"reason": "mine"}`)
	b.awaitGate(gate, "ship")
	b.make(gate, statefs.Approve, `{"step": "agree", "reason": "late"}`).want(statefs.WaitingApproval, false)
	made()
	approve.want(statefs.WaitingApproval, true)
}

var gateJobsWithParam = strings.Replace(gateJobs, "name: gated",
	"name: gated\nparams: {n: {type: integer, default: 1}}", 1)

// Requests about steps have taken effect when they are in the record, and a reject when the operation has ended.
func TestOutcomesOfRequestsAboutSteps(t *testing.T) {
	t.Parallel()
	b := setup(t, gateJobsWithParam, nil)
	id := b.submit("gated", `{}`)
	b.record(id, statefs.WaitingApproval)
	b.make(id, statefs.Approve, `{"step": "ship"}`).want(statefs.WaitingApproval, false) // refused
	b.make(id, statefs.Set, `{"values": {"params.n": 2}}`).want(statefs.WaitingApproval, true)
	b.make(id, statefs.Approve, `{}`).want(statefs.Queued, true)
	b.awaitGate(id, "ship")
	b.make(id, statefs.Reject, `{"step": "agree"}`).want(statefs.WaitingApproval, false) // refused
	b.make(id, statefs.Reject, `{}`).want(statefs.Failed, true)
}

// A reject is answered when the operation has ended. An optional step that is at work must end first.
func TestOutcomeOfARejectBesideAnOptionalStep(t *testing.T) {
	t.Parallel()
	begun, letGo := make(chan struct{}, 1), make(chan struct{})
	b := setup(t, `
group: test
name: gated_beside
steps:
  - {name: main, run: [echo, main]}
  - {name: agree, needs: [main], approve: true}
  - {name: aside, needs: [main], optional: true, handler: busy}
`, busyHandlers(begun, letGo))
	id := b.submit("gated_beside", `{}`)
	<-begun
	b.record(id, statefs.WaitingApproval)
	reject := b.make(id, statefs.Reject, `{}`)
	b.awaitLog(id, "Step agree is rejected")
	reject.wantNone()
	b.make(id, statefs.Approve, `{}`).want(statefs.WaitingApproval, false) // too late
	reject.wantNone()
	close(letGo)
	reject.want(statefs.Failed, true)
}

// A daemon that was killed between carrying out an approve and removing its file leaves the file in taken/. The next
// daemon restores it. A client that asks that daemon again is answered, and what was approved is not approved twice.
func TestOutcomesBesideARestoredApprove(t *testing.T) {
	t.Parallel()
	b := setup(t, gateJobs, nil)
	early, late := b.submit("gated", `{}`), b.submit("gated", `{}`)
	ids := []statefs.ID{early, late}
	for _, id := range ids {
		b.record(id, statefs.WaitingApproval)
	}
	must(t, b.stop())
	aside := t.TempDir()
	for _, id := range ids {
		b.request(id, statefs.Approve, `{}`)
		name := statefs.RequestName(id, statefs.Approve)
		must(t, os.Link(filepath.Join(b.tree.JobsDir(), name), filepath.Join(aside, name)))
	}
	b.start()
	for _, id := range ids {
		b.awaitGate(id, "ship")
	}
	must(t, b.stop())
	for _, id := range ids {
		name := statefs.RequestName(id, statefs.Approve)
		must(t, os.Rename(filepath.Join(aside, name), filepath.Join(b.dir, "taken", name)))
	}
	var first, second *pendingRequest
	b.startAfter(func() {
		first = b.make(early, statefs.Approve, `{"step": "agree"}`) // replaces the file in taken/
		second = &pendingRequest{b, statefs.Approve, b.daemon.AwaitRequest(late, statefs.Approve)}
	})
	must(t, b.tree.RequestThen(late, statefs.Approve, json.RawMessage(`{"step": "agree"}`), second.waiter.Made))
	first.want(statefs.WaitingApproval, false)
	second.want(statefs.WaitingApproval, false)
	for _, id := range ids {
		b.awaitGate(id, "ship")
		b.make(id, statefs.Approve, `{}`).want(statefs.Queued, true)
		if rec := b.awaitEnd(id); rec.Result != statefs.Success || len(rec.ActionRecords) != 2 {
			t.Errorf("%s with %+v", rec.Result, rec.ActionRecords)
		}
	}
	if names := b.taken(); len(names) > 0 {
		t.Errorf("taken/ holds %q", names)
	}
}

func (b *bench) awaitGate(id statefs.ID, step string) {
	b.t.Helper()
	b.await("the gate of step "+step, func() bool {
		rec, err := b.tree.ReadRecord(id)
		return err == nil && rec.Status == statefs.WaitingApproval && rec.CurrentStep().Name == step
	})
}

// A request whose file a person removes before it is carried out is answered, also while the disk is full.
func TestOutcomeOfAWithdrawnRequestOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir, fill := smallDisk(t)
	b := prepareAt(t, dir, gateJobs, nil)
	b.start()
	id := b.submit("gated", `{}`)
	b.record(id, statefs.WaitingApproval)
	defer fill()()
	approve := b.make(id, statefs.Approve, "") // the daemon waits for the arguments of an empty file
	must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.RequestName(id, statefs.Approve))))
	approve.want(statefs.WaitingApproval, false)
}

// So is a request for an operation that the daemon cannot manage because a newer daemon wrote its record.
func TestOutcomeOfAWithdrawnRequestOfANewerRecord(t *testing.T) {
	t.Parallel()
	b := setup(t, gateJobs, nil)
	id := b.submit("gated", `{}`)
	b.record(id, statefs.WaitingApproval)
	must(t, b.stop())
	file := strings.TrimSuffix(b.tree.LogPath(id), ".log") + ".json"
	record, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, []byte(`{"version": 1000}`), 0o640))
	b.start()
	approve, cancel := b.make(id, statefs.Approve, `{}`), b.make(id, statefs.Cancel, "")
	approve.wantNone()
	must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.RequestName(id, statefs.Approve))))
	approve.want(statefs.WaitingApproval, false)
	cancel.wantNone()
	must(t, os.WriteFile(file, record, 0o640))
	cancel.want(statefs.Cancelled, true)
}

// An operation that waits for its next attempt was retried by the request, also if the attempt fails at once.
func TestOutcomesOfRetries(t *testing.T) {
	t.Parallel()
	b := setup(t, "group: test\nname: person\nretry: {max_attempts: 3}\nrun: [sh, -c, 'exit 77']\n", nil)
	id := b.submit("person", `{}`)
	b.record(id, statefs.FailedManual)
	b.make(id, statefs.Retry, "").want(statefs.Queued, true)
	b.awaitLog(id, lineRetry)
	b.record(id, statefs.FailedManual)
	b.make(id, statefs.Cancel, "").want(statefs.Cancelled, true)
}

// A request that another change came before has no effect: a retry whose time came first, and a reject of what an
// earlier request approves.
func TestOutcomesOfRequestsThatAreOvertaken(t *testing.T) {
	t.Parallel()
	b := setup(t, dueJobs+"---"+gateJobs+`---
group: test
name: limited
deadline: 30h
retry: {max_attempts: 3, initial: 10h, jitter: 0}
exit_codes: {retryable: [1]}
run: [sh, -c, "exit 1"]
`, dueHandlers)
	away, limited, gate := b.submit("away", `{}`), b.submit("limited", `{}`), b.submit("gate_first", `{}`)
	b.record(away, statefs.FailedRetryable)
	b.make(away, statefs.Retry, "").want(statefs.Queued, true)
	b.awaitLog(away, lineRetry)
	b.record(away, statefs.FailedRetryable)
	b.record(limited, statefs.FailedRetryable)
	b.record(gate, statefs.WaitingApproval)
	b.pauseLane("default", "")
	must(t, b.stop())
	b.jump.Store(int64(40 * time.Hour))
	var pause, approve, reject *pendingRequest
	b.startAfter(func() {
		pause = b.make(limited, statefs.Pause, "")
		approve = b.make(gate, statefs.Approve, `{}`)
		file := filepath.Join(b.tree.JobsDir(), statefs.RequestName(gate, statefs.Approve))
		aside := filepath.Join(t.TempDir(), "approve")
		must(t, os.Rename(file, aside)) // or the reject would replace it
		reject = b.make(gate, statefs.Reject, `{}`)
		must(t, os.Rename(aside, file))
	})
	pause.want(statefs.Paused, true) // which is durable before the operation expires
	b.awaitEnd(limited)
	approve.want(statefs.Queued, true)
	reject.want(statefs.Queued, false)
	b.record(away, statefs.Queued)
	b.make(away, statefs.Retry, "").want(statefs.Queued, false)
	b.make(away, statefs.Pause, "").want(statefs.Paused, true)
	b.make(away, statefs.Resume, "").want(statefs.Queued, true)
}

// Requests that are made before the daemon knows its operations are answered when it does. One file that holds the
// last of several requests answers all, and only equal ones took effect. A removed file is a withdrawn request.
func TestOutcomesInADaemonThatStarts(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	var ids [3]statefs.ID
	for i := range ids {
		ids[i] = b.submit("wait", `{}`)
		b.awaitState(ids[i], statefs.Running)
		b.make(ids[i], statefs.Pause, "").want(statefs.Paused, true)
	}
	must(t, b.stop())
	var wants []func()
	b.startAfter(func() {
		three := b.make(ids[0], statefs.Prioritize, `{"priority":3}`)
		seven := b.make(ids[0], statefs.Prioritize, `{"priority":7}`)
		wants = append(wants, func() { three.want(statefs.Paused, false) }, func() { seven.want(statefs.Paused, true) })
		withdrawn := b.make(ids[1], statefs.Resume, "")
		must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.RequestName(ids[1], statefs.Resume))))
		wants = append(wants, func() { withdrawn.want(statefs.Paused, false) })
		resume, pause := b.make(ids[2], statefs.Resume, ""), b.make(ids[2], statefs.Pause, "") // which removes the resume
		wants = append(wants, func() { resume.want(statefs.Paused, false) }, func() { pause.want(statefs.Paused, true) })
	})
	for _, want := range wants {
		want()
	}
	gone := b.daemon.AwaitRequest(ids[0], statefs.Pause)
	gone.Leave()
	gone.Made(nil)
	b.make(ids[0], statefs.Cancel, "").want(statefs.Cancelled, true)
	select {
	case <-gone.C:
		t.Error("a client that has left is answered")
	default:
	}
}

// The program of a foreign operation may remove a request before it acts on it: the marker shows what it did.
func TestOutcomesOfForeignOperations(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	id, err := statefs.MakeID("other-thing", time.Now(), os.Getppid(), 900_000)
	must(t, err)
	path := func(name string) string { return filepath.Join(b.tree.JobsDir(), name) }
	must(t, os.WriteFile(path(statefs.MarkerName(id, statefs.Running)), nil, 0o640))
	pause := b.make(id, statefs.Pause, "")
	pause.wantNone()
	must(t, os.Remove(path(statefs.RequestName(id, statefs.Pause))))
	pause.wantNone()
	must(t, os.Rename(path(statefs.MarkerName(id, statefs.Running)), path(statefs.MarkerName(id, statefs.Paused))))
	pause.want(statefs.Paused, true)
	retry := b.make(id, statefs.Retry, "")
	must(t, os.Remove(path(statefs.RequestName(id, statefs.Retry))))
	retry.want(statefs.Paused, false)
	cancel := b.make(id, statefs.Cancel, "")
	must(t, os.Remove(path(statefs.MarkerName(id, statefs.Paused))))
	cancel.want("", false)
}

// Followers hear of each change of an operation, also of a foreign one, and also if its event was lost; and when a
// request is gone.
func TestOnChange(t *testing.T) {
	t.Parallel()
	b := prepare(t, handlerJobs, testHandlers)
	var mu sync.Mutex
	changes := make(map[statefs.ID]int)
	b.startAfter(func() {
		b.daemon.OnChange(func(id statefs.ID) {
			mu.Lock()
			defer mu.Unlock()
			changes[id]++
		})
	})
	changed := func(id statefs.ID, do func()) {
		t.Helper()
		mu.Lock()
		before := changes[id]
		mu.Unlock()
		do()
		b.poll("the change is heard of", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return changes[id] > before
		})
	}
	own := b.submit("wait", `{}`)
	b.awaitState(own, statefs.Running)
	b.daemon.reconcileQueue.wait()
	op := b.daemon.operation(own)
	changed(own, func() { must(t, b.daemon.drop(op, new(request))) })
	changed(own, func() { // which the daemon takes back
		b.mv(statefs.MarkerName(own, statefs.Running), statefs.MarkerName(own, statefs.FailedManual))
	})
	b.awaitState(own, statefs.Running)
	b.daemon.reconcileQueue.wait()
	changed(own, func() { b.touch(own, statefs.Cancel) })
	b.awaitEnd(own)
	foreign, err := statefs.MakeID("other-thing", time.Now(), os.Getppid(), 900_000)
	must(t, err)
	marker := filepath.Join(b.tree.JobsDir(), statefs.MarkerName(foreign, statefs.Running))
	changed(foreign, func() { must(t, os.WriteFile(marker, nil, 0o640)) })
	b.daemon.reconcileQueue.wait()
	b.daemon.watchMu.Lock() // no event reaches the daemon
	defer b.daemon.watchMu.Unlock()
	changed(foreign, func() {
		must(t, os.Remove(marker))
		b.daemon.rescan()
	})
}
