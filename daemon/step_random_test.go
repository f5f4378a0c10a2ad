package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/events"
	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// These variables set the number of rounds and the random seed of the test below:
// JOBDIR_STEPS_ROUNDS=200 JOBDIR_STEPS_SEED=7 go test -run TestRandomSteps ./daemon
const (
	roundsVariable = "JOBDIR_STEPS_ROUNDS"
	seedVariable   = "JOBDIR_STEPS_SEED"
)

func numberFrom(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	must(t, err)
	return n
}

// TestRandomSteps runs random graphs whose steps fail, need a person, panic, hang and lack outputs,
// while the test makes random requests, repeats requests, moves the clock and restarts the daemon.
// Whenever an operation comes to rest, its state must match its steps, and it must wait for work, a
// time or a person. At each change no step may have begun before the steps that it needs, and no
// finished step may begin again unless a retry went back to it. At the end the events of all daemons
// must be those of the records.
func TestRandomSteps(t *testing.T) {
	t.Parallel()
	seed := numberFrom(t, seedVariable, uint64(time.Now().UnixNano()))
	for round := range numberFrom(t, roundsVariable, 8) {
		random := rand.New(rand.NewPCG(seed, round))
		playSteps(t, random)
		if t.Failed() {
			t.Fatalf("round %d of %s=%d", round, seedVariable, seed)
		}
	}
}

func playSteps(t *testing.T, random *rand.Rand) {
	t.Helper()
	w := &stepWorld{
		t: t, random: random, ops: map[statefs.ID]*watchedSteps{}, scripts: map[string][]string{},
		atWork: map[stepPlace]int{}, holding: map[stepPlace]bool{},
	}
	var jobs strings.Builder
	for i := range 3 {
		jobs.WriteString(w.drawJob(i))
	}
	w.bench = prepare(t, jobs.String(), work.Handlers{"scripted": {Run: w.scripted}})
	w.tellEvents()
	w.start()
	w.hold = make(chan struct{})
	t.Cleanup(func() { w.freeAll() })
	for i := range 3 {
		id := w.submit(fmt.Sprintf("j%d", i), `{}`)
		w.mu.Lock()
		w.ops[id] = &watchedSteps{graph: w.catalog.Get("test", fmt.Sprintf("j%d", i)).Graph()}
		w.mu.Unlock()
		w.ids = append(w.ids, id)
	}
	for range 20 + random.IntN(20) {
		w.act()
		if random.IntN(6) == 0 {
			w.rest()
		}
		if t.Failed() {
			return
		}
	}
	w.rest()
	w.endAll()
	w.checkEnds()
}

// act performs one random action.
func (w *stepWorld) act() {
	id := w.ids[w.random.IntN(len(w.ids))]
	switch n := w.random.IntN(20); {
	case n < 1:
		must(w.t, errors.Join(w.stop(), w.config.Events.Close()))
		w.tellEvents()
		w.start()
	case n < 6:
		w.free()
	case n < 8:
		<-time.After(time.Duration(w.random.IntN(5)) * time.Millisecond) // let the daemon work for a random time
	case n < 9:
		w.repeat()
	case n < 10:
		w.jump.Add(int64(20 * time.Minute)) // an attempt may be due now
		for _, id := range w.ids {
			w.daemon.reconcileQueue.enqueue(id)
		}
	default:
		asks := []statefs.Action{
			statefs.Retry, statefs.Retry, statefs.Retry, statefs.Skip, statefs.Set, statefs.Approve, statefs.Approve,
			statefs.Reject, statefs.Pause, statefs.Resume,
			statefs.Resume, statefs.Cancel,
		}
		ask := asks[w.random.IntN(len(asks))]
		if (ask == statefs.Cancel || ask == statefs.Reject) && w.random.IntN(4) > 0 {
			ask = statefs.Approve // otherwise all would end early
		}
		w.ask(id, ask)
	}
}

// ask puts a request into jobs/, often for a step to which it does not apply.
func (w *stepWorld) ask(id statefs.ID, ask statefs.Action) {
	args := map[string]any{}
	graph := w.ops[id].graph
	if w.random.IntN(2) == 0 && slices.Contains([]statefs.Action{statefs.Retry, statefs.Skip, statefs.Approve}, ask) {
		args["step"] = graph[w.random.IntN(len(graph))].Name
	}
	if ask == statefs.Set {
		args["values"] = map[string]any{"params.n": w.random.IntN(9)}
	}
	line, err := json.Marshal(args)
	must(w.t, err)
	w.put(statefs.RequestName(id, ask), fmt.Sprintf("%s\n%s\n", w.now().Format(statefs.StampFormat), line))
}

// put writes a request file, even if the operation is no longer live.
func (w *stepWorld) put(name, text string) {
	temp := filepath.Join(w.dir, "tmp", name)
	must(w.t, os.MkdirAll(filepath.Dir(temp), 0o750))
	must(w.t, os.WriteFile(temp, []byte(text), 0o600))
	stamp, _, _ := strings.Cut(text, "\n")
	at, err := time.Parse(statefs.StampFormat, stamp)
	must(w.t, err)
	must(w.t, os.Chtimes(temp, at, at))
	must(w.t, os.Rename(temp, filepath.Join(w.tree.JobsDir(), name)))
	w.asked = append(w.asked, [2]string{name, text})
}

// repeat makes an earlier request again, unchanged.
func (w *stepWorld) repeat() {
	if len(w.asked) > 0 {
		r := w.asked[w.random.IntN(len(w.asked))]
		w.put(r[0], r[1])
	}
}

// rest waits until nothing moves by itself and the state of every operation matches its steps.
func (w *stepWorld) rest() {
	for _, id := range w.ids {
		began := time.Now()
		w.poll(fmt.Sprintf("%s comes to rest", id), func() bool {
			why := w.moves(id)
			if why != "" && time.Since(began) > patience/4 {
				w.t.Errorf("%s does not come to rest: %s, log:\n%s", id, why, w.log(id))
			}
			return why == "" || w.t.Failed()
		})
	}
}

// moves returns why an operation is not at rest or where its state does not match its steps, "" if
// all is well.
func (w *stepWorld) moves(id statefs.ID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	sight, err := w.tree.ObserveAll(id)
	must(w.t, err)
	rec := w.see(id)
	if rec == nil {
		return "its record cannot be read"
	}
	taken, err := filepath.Glob(filepath.Join(w.dir, "taken", id.String()+"*"))
	must(w.t, err)
	switch {
	case len(sight.Requests) > 0 && len(sight.States) > 0:
		return fmt.Sprintf("requests %v lie about; %s, %s", sight.Requests, sight.States, statuses(rec))
	case len(taken) > 0:
		return "requests are in hand"
	case len(sight.States) > 1:
		return "it has two markers"
	case len(sight.States) == 0:
		return w.over(id, rec)
	}
	state, want := sight.States[0], rec.Status
	if rec.Trailing {
		want = statefs.Trailing
	}
	if state != want || rec.Next != "" && rec.Next != state {
		return fmt.Sprintf("marker %s, record %s, next %q", state, want, rec.Next)
	}
	if why := w.sidesRest(id, rec, state); why != "" {
		return why
	}
	return w.stands(id, rec, state)
}

// stands compares the state of an operation with its required steps.
func (w *stepWorld) stands(id statefs.ID, rec *statefs.Record, state statefs.State) string {
	graph := w.ops[id].graph
	at := rec.CurrentStep()
	if at == nil {
		if state != statefs.Trailing && state != statefs.Paused { // a pause may come after the last step
			return "all is done, and it is " + string(state)
		}
		return ""
	}
	node := graph.Find(at.Name)
	right := false
	switch state {
	case statefs.Running:
		right = at.Status == steps.Running && w.holding[stepPlace{id, at.Name}]
	case statefs.Paused:
		right = at.Status == steps.Pending || at.Status == steps.FailedRetryable || at.Status == steps.Running &&
			w.holding[stepPlace{id, at.Name}]
	case statefs.FailedRetryable:
		right = at.Status == steps.FailedRetryable && rec.DueAt != nil && rec.DueAt.After(w.now())
	case statefs.FailedManual:
		right = at.Status == steps.FailedManual
	case statefs.WaitingApproval:
		right = at.Status == steps.Pending && node.Approve && at.ApprovedAt == nil
	case statefs.Queued, statefs.Scheduled, statefs.Trailing, statefs.Completed, statefs.Cancelled, statefs.Failed:
	}
	if !right {
		return fmt.Sprintf("it is %s at %s, which is %s: %s", state, at.Name, at.Status, statuses(rec))
	}
	return ""
}

// sidesRest compares the status of the optional steps with the running work.
func (w *stepWorld) sidesRest(id statefs.ID, rec *statefs.Record, state statefs.State) string {
	graph := w.ops[id].graph
	works := false
	for _, s := range rec.Steps {
		if !s.Optional {
			continue
		}
		holding := w.holding[stepPlace{id, s.Name}]
		if holding != (s.Status == steps.Running) {
			return fmt.Sprintf("%s is %s, and at work: %t", s.Name, s.Status, holding)
		}
		due := s.Status == steps.FailedRetryable && graph.Ready(rec.Steps, s.Name)
		if due && (s.DueAt == nil || !s.DueAt.After(w.now())) && (state == statefs.Running || state == statefs.Trailing) {
			return s.Name + " is due"
		}
		works = works || holding || due || s.Status == steps.FailedManual
	}
	if begin := graph.ReadyOptional(rec.Steps); len(begin) > 0 && (state == statefs.Running || state == statefs.Trailing) {
		return fmt.Sprintf("%v may begin", begin)
	}
	if state == statefs.Trailing && !works {
		return "it trails, and nothing is to be done: " + statuses(rec)
	}
	return ""
}

// over checks an operation that has ended.
func (w *stepWorld) over(id statefs.ID, rec *statefs.Record) string {
	if !rec.Status.Terminal() || rec.Trailing {
		return fmt.Sprintf("it has no marker, and is %s", rec.Status)
	}
	if done := rec.CurrentStep() == nil; done != (rec.Status == statefs.Completed) {
		return fmt.Sprintf("it is %s: %s", rec.Status, statuses(rec))
	}
	for _, s := range rec.Steps {
		if s.Status == steps.Running || w.holding[stepPlace{id, s.Name}] {
			return fmt.Sprintf("it has ended, and %s is %s", s.Name, s.Status)
		}
	}
	return ""
}

// endAll acts like a patient person until every operation has ended.
func (w *stepWorld) endAll() {
	w.freeAll()
	for range 200 {
		live := 0
		for _, id := range w.ids {
			sight, err := w.tree.ObserveAll(id)
			must(w.t, err)
			if len(sight.States) != 1 {
				continue
			}
			live++
			asks := map[statefs.State]statefs.Action{
				statefs.WaitingApproval: statefs.Approve, statefs.FailedManual: statefs.Retry,
				statefs.FailedRetryable: statefs.Retry, statefs.Paused: statefs.Resume,
				statefs.Trailing: statefs.Retry, // of an optional step that failed
			}
			if ask, ok := asks[sight.States[0]]; ok {
				w.put(statefs.RequestName(id, ask), w.now().Format(statefs.StampFormat)+"\n")
			}
		}
		if live == 0 {
			return
		}
		w.jump.Add(int64(time.Hour))
		for _, id := range w.ids {
			w.daemon.reconcileQueue.enqueue(id)
		}
		w.rest()
	}
	for _, id := range w.ids {
		w.t.Errorf("%s does not come to its end, log:\n%s", id, w.log(id))
	}
}

// checkEnds checks the final state.
func (w *stepWorld) checkEnds() {
	w.rest()
	for _, id := range w.ids {
		ends := 0
		w.poll(fmt.Sprintf("%s is in the feed", id), func() bool {
			ends = 0
			for _, row := range w.ends(0) {
				if row.ID == id && row.Status.Terminal() {
					ends++
				}
			}
			return ends > 0
		})
		if ends > 1 {
			w.t.Errorf("%s is in the feed %d times", id, ends)
		}
	}
	must(w.t, errors.Join(w.stop(), w.config.Events.Close()))
	w.checkEvents()
	for _, folder := range []string{"taken", "corrupt"} {
		if left, err := filepath.Glob(filepath.Join(w.dir, folder, "*")); err != nil || len(left) > 0 {
			w.t.Errorf("left in %s: %q, %v", folder, left, err)
		}
	}
	w.start()
}

// checkEvents compares the published events with the records: each transition of an operation once, in order, and each
// status of a step when it changed.
func (w *stepWorld) checkEvents() {
	r := w.config.Events.Follow(events.Filter{Types: []events.Type{events.Transition, events.StepChanged}}, 0)
	defer r.Close()
	transitions, last := map[statefs.ID][]string{}, map[stepPlace]string{}
	for more := true; more; {
		var frames []events.Frame
		frames, more = r.Take()
		for _, f := range frames {
			here, status := stepPlace{f.ID, f.Step}, fmt.Sprintf("%s in run %d", f.Status, f.Run)
			switch {
			case f.Type == events.Transition:
				transitions[f.ID] = append(transitions[f.ID], fmt.Sprint(f.From, f.To, f.Cause, f.At.UnixNano()))
			case last[here] == status:
				w.t.Errorf("%v is published again as %s", here, status)
			default:
				last[here] = status
			}
		}
	}
	for _, id := range w.ids {
		rec, err := w.tree.ReadRecord(id)
		must(w.t, err)
		var want []string
		for _, t := range rec.Transitions {
			want = append(want, fmt.Sprint(t.From, t.To, t.Cause, t.At.UnixNano()))
		}
		if len(transitions[id]) == len(want)-1 {
			want = want[1:] // its first daemon stopped before it took the submit over
		}
		if !slices.Equal(transitions[id], want) {
			w.t.Errorf("the transitions of %s are published as\n%s\nand the record has\n%s", id,
				strings.Join(transitions[id], "\n"), strings.Join(want, "\n"))
		}
		for _, s := range rec.Steps {
			now := fmt.Sprintf("%s in run %d", s.Status, s.Run)
			if told, is := last[stepPlace{id, s.Name}]; is && told != now || !is && s.Status != steps.Pending {
				w.t.Errorf("step %s of %s is %s, and its last event is %q", s.Name, id, now, told)
			}
		}
	}
}
