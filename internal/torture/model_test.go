package torture

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/internal/faultfs"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
)

// TestModelOnRealFolder performs random actions of clients, people and crashes on the real daemon, with a
// folder in memory and inotify, and compares each operation with a model of a few lines. rapid shrinks a
// failing sequence.
func TestModelOnRealFolder(t *testing.T) {
	checkModel(t, prooftest.Count(2, 6, 100), 60, func() (*rig, func(), func()) {
		top, err := os.MkdirTemp(fastDir(), "jobdir-model") //nolint:usetesting // hundreds of them: each goes at once
		must(t, err)
		r := newRig(t, filepath.Join(top, "storage"))
		return r, func() {}, func() { r.endAll(); must(t, os.RemoveAll(top)) }
	})
}

// TestModelOnDiskInMemory is TestModelOnRealFolder on the disk of internal/faultfs: a crash is a power cut,
// which loses all unsynced data.
func TestModelOnDiskInMemory(t *testing.T) {
	if err := faultfs.CanMount(); err != nil {
		t.Skip(err)
	}
	checkModel(t, prooftest.Count(2, 4, 60), 60, func() (*rig, func(), func()) {
		p := plug(t, faultfs.Empty())
		return p.rig, func() {
			p.disk.Cut()
			p.endAll()
			image := p.drawImage()
			p.remove()
			p.insert(image)
		}, p.remove
	})
}

// checkModel runs sequences of actions. prepare makes a storage, cut loses what a crash of the machine loses,
// and end removes the storage.
func checkModel(t *testing.T, sequences, steps int, prepare func() (r *rig, cut, end func())) {
	t.Helper()
	seed := flag.Lookup("rapid.seed").Value.String()
	if !prooftest.Full() && seed == "0" {
		seed = "20261122" // the short form always plays the same sequences, the full one others
	}
	for name, value := range map[string]string{
		"rapid.seed":   seed,
		"rapid.checks": strconv.Itoa(sequences), "rapid.steps": strconv.Itoa(steps),
		"rapid.nofailfile": "true", // the message has the whole sequence, and a replay has different timing
	} {
		was := flag.Lookup(name).Value.String()
		must(t, flag.Set(name, value))
		defer func() { must(t, flag.Set(name, was)) }()
	}
	actions, crashes, followed := 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		r, cut, end := prepare()
		defer end()
		m := &model{t: rt, r: r, cut: cut, ops: map[statefs.ID]*expected{}}
		m.start()
		rt.Repeat(m.actions())
		m.conclude()
		actions, crashes, followed = actions+len(m.done), crashes+m.crashes, followed+len(m.ops)
	})
	if !t.Failed() {
		figures.add(t, "random actions against a model", actions)
		figures.add(t, "of these crashes", crashes)
		figures.add(t, "operations as the model has them", followed)
	}
}

// model is the expected state.
type model struct {
	t       *rapid.T
	r       *rig
	cut     func()
	d       *daemon // nil while none runs
	daemons []*daemon
	ops     map[statefs.ID]*expected
	junk    []string // names in jobs/ without a meaning
	done    []string
	crashes int
}

// expected is the expected state of one operation.
type expected struct {
	job string
	// want is its final state.
	want statefs.State
	// unsure means that its last change may be lost by a power cut: changes by a person are not synced.
	unsure bool
	// restless means that the last request for it may not have taken effect yet.
	restless bool
	// aside means that its marker may currently have a name without a meaning, so that the operation cannot
	// be found.
	aside bool
	// either means that it may be running or paused: after a crash, a request that was carried out may come
	// back, if its removal was not yet durable, and undo a change that a person made within those
	// milliseconds.
	either bool
}

// rest returns the final state of an operation that is neither paused nor cancelled.
func rest(job string) statefs.State {
	if job == "sleep" {
		return statefs.Running
	}
	return statefs.Completed
}

func (m *model) note(format string, args ...any) {
	m.done = append(m.done, fmt.Sprintf(format, args...))
}

func (m *model) must(err error) {
	m.t.Helper()
	if err != nil {
		m.fail(err)
	}
}

func (m *model) fail(err error) {
	m.t.Helper()
	var said strings.Builder
	names, _ := os.ReadDir(filepath.Join(m.r.dir, "jobs")) // only to help
	lines, _ := left(m.r.dir)
	for _, entry := range names {
		fmt.Fprintf(&said, "jobs/%s\n", entry.Name())
	}
	for id := range m.ops {
		fmt.Fprintf(&said, "journal: %s\n", lines[id])
	}
	for _, d := range m.daemons {
		fmt.Fprintf(&said, "daemon %d:\n%s", d.cmd.Process.Pid, d.stderr)
	}
	m.t.Fatalf("%v\nafter:\n%s\nthe daemons said:\n%s", err, strings.Join(m.done, "\n"), &said)
}

func (m *model) start() {
	m.t.Helper()
	d, err := m.r.tryStart("--sweep-interval", "1s")
	m.must(err)
	m.d = d
	m.note("daemon %d", d.cmd.Process.Pid)
	m.daemons = append(m.daemons, d)
}

func (m *model) tree() *statefs.Tree {
	m.t.Helper()
	tree, err := statefs.Open(m.r.dir, statefs.Options{Durability: statefs.Process})
	m.must(err)
	return tree
}

// actions are the possible next actions. An unsuitable one is redrawn: that is what (*rapid.T).Skip means; no
// test is skipped by it.
func (m *model) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"submit": m.submit, "submit more": m.submit, "ask": m.request, "ask again": m.request, "touch": m.touch, "mv": m.move,
		"mv nonsense": m.moveAside,
		"rm":          m.remove, "second marker": m.second, "foreign files": m.foreign, "settle": m.settle,
		"kill": m.kill, "stop": m.stop, "start": func(t *rapid.T) {
			if m.d != nil {
				t.Skip("one runs")
			}
			m.note("start")
			m.start()
		},
		"sweep": func(t *rapid.T) {
			m.runs(t)
			m.note("sweep")
			_, err := m.d.Sweep(m.r.t.Context(), false)
			m.must(err)
		},
	}
}

// runs skips an action that needs a daemon.
func (m *model) runs(t *rapid.T) {
	if m.d == nil {
		t.Skip("no daemon runs")
	}
}

func (m *model) submit(t *rapid.T) {
	m.runs(t)
	job := rapid.SampledFrom([]string{"sleep", "sleep", "quick", "items"}).Draw(t, "job")
	op, err := m.d.Submit(m.r.t.Context(), "t", job, nil)
	m.must(err)
	m.note("submit %s: %s", job, op.ID)
	if m.ops[op.ID] != nil {
		m.fail(fmt.Errorf("%s was given twice", op.ID))
	}
	m.ops[op.ID] = &expected{job: job, want: rest(job), restless: true}
}

// pick draws one of the operations that run until they are cancelled: the others may end at any time.
func (m *model) pick(t *rapid.T, fits func(*expected) bool) (statefs.ID, *expected) {
	var live []statefs.ID
	for id, op := range m.ops {
		if op.job == "sleep" && op.want.Live() && fits(op) {
			live = append(live, id)
		}
	}
	if len(live) == 0 {
		t.Skip("there is no such operation")
	}
	slices.SortFunc(live, func(a, b statefs.ID) int { return strings.Compare(a.String(), b.String()) })
	id := live[rapid.IntRange(0, len(live)-1).Draw(t, "operation")]
	return id, m.ops[id]
}

func anyOf(*expected) bool { return true }

// atRest selects operations without pending requests, whose marker is where the model expects it.
func atRest(op *expected) bool { return !op.restless }

var wished = map[statefs.Action]statefs.State{
	statefs.Pause: statefs.Paused, statefs.Resume: statefs.Running, statefs.Cancel: statefs.Cancelled,
}

func drawAsk(t *rapid.T) statefs.Action {
	return rapid.SampledFrom([]statefs.Action{
		statefs.Pause, statefs.Resume, statefs.Pause, statefs.Resume,
		statefs.Cancel,
	}).Draw(t, "ask")
}

// request makes a request over HTTP: after the answer it is on disk.
func (m *model) request(t *rapid.T) {
	m.runs(t)
	id, op := m.pick(t, anyOf)
	ask, wait := drawAsk(t), time.Duration(rapid.IntRange(0, 1).Draw(t, "wait"))*patience
	m.note("%s %s, wait %s", ask, id, wait)
	_, err := m.d.Request(m.r.t.Context(), id, ask, wait)
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status == http.StatusNotFound && op.aside {
		return
	}
	m.must(err)
	op.want, op.restless, op.unsure, op.either = wished[ask], wait == 0, false, false
}

// touch makes a request by a file, even while no daemon runs.
func (m *model) touch(t *rapid.T) {
	id, op := m.pick(t, func(op *expected) bool { return !op.restless })
	ask := drawAsk(t)
	m.note("touch %s.%s_requested", id, ask)
	m.must(m.r.touch(id, ask))
	op.want, op.restless, op.unsure, op.either = wished[ask], true, true, false
}

func (m *model) marker(id statefs.ID, state statefs.State) string {
	return filepath.Join(m.r.dir, "jobs", statefs.MarkerName(id, state))
}

// move renames a marker to another state, as a person does to change the state.
func (m *model) move(t *rapid.T) {
	id, op := m.pick(t, atRest)
	to := statefs.Paused
	if op.want == statefs.Paused {
		to = statefs.Running
	}
	if len(m.taken(id)) > 0 && m.d == nil {
		t.Skip("a request that had its effect is carried out again by the next daemon, which cannot see that a hand came later")
	}
	m.note("mv %s from %s to %s", id, op.want, to)
	err := os.Rename(m.marker(id, op.want), m.marker(id, to))
	if errors.Is(err, os.ErrNotExist) {
		return // without a daemon, or right after its start, it may be queued
	}
	m.must(err)
	op.want, op.restless, op.unsure, op.either = to, true, true, false
}

// moveAside renames a marker to a name without a meaning: it is restored.
func (m *model) moveAside(t *rapid.T) {
	m.runs(t)
	id, op := m.pick(t, atRest)
	ending := rapid.SampledFrom([]string{".quewed", ".running.bak", ".completed", ".scheduled", ""}).Draw(t, "ending")
	m.note("mv %s from %s to %q", id, op.want, ending)
	err := os.Rename(m.marker(id, op.want), filepath.Join(m.r.dir, "jobs", id.String()+ending))
	if !errors.Is(err, os.ErrNotExist) {
		m.must(err)
	}
	op.restless, op.aside = true, true
}

// remove removes a marker, which cancels. If it were the only one while no daemon runs, the next daemon would
// treat jobs/ as emptied.
func (m *model) remove(t *rapid.T) {
	m.runs(t)
	id, op := m.pick(t, atRest)
	m.note("rm %s.%s", id, op.want)
	err := os.Remove(m.marker(id, op.want))
	if errors.Is(err, os.ErrNotExist) && !m.cancelled(id) {
		return
	}
	if !errors.Is(err, os.ErrNotExist) {
		m.must(err)
	}
	op.want, op.restless, op.unsure, op.either = statefs.Cancelled, true, true, false
	m.settle(t) // the daemon cancels only at a second reconcile
}

// cancelled reports whether an operation is cancelled, and not merely renamed. An interrupted system call is
// repeated, and with FUSE (fuse(4)) the first attempt may have succeeded: then removing a file reports that
// it does not exist.
func (m *model) cancelled(id statefs.ID) bool {
	tree := m.tree()
	defer func() { m.must(tree.Close()) }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		rec, err := tree.ReadRecord(id)
		if journaled() && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if m.must(err); rec.Status == statefs.Cancelled {
			return true
		}
		if sight, err := tree.ObserveAll(id); len(sight.States) > 0 {
			m.must(err)
			return false
		}
	}
	m.fail(fmt.Errorf("%s has no marker, and is not cancelled", id))
	return false
}

// second makes a second marker beside the existing one, which the daemon removes.
func (m *model) second(t *rapid.T) {
	m.runs(t)
	id, op := m.pick(t, atRest)
	m.note("second marker of %s", id)
	m.must(put(m.marker(id, statefs.Trailing), ""))
	op.restless = true
}

// foreign makes files that the daemon must ignore.
func (m *model) foreign(t *rapid.T) {
	id, err := statefs.MakeID("other-program", time.Now(), os.Getpid(), 1e9+uint64(len(m.junk)))
	m.must(err)
	name := rapid.SampledFrom([]string{
		statefs.MarkerName(id, statefs.Running), "nudge", "README", ".swp", "x.running",
		"\xff",
	}).Draw(t, "name")
	m.note("touch %q", name)
	m.must(put(filepath.Join(m.r.dir, "jobs", name), time.Now().Format(statefs.StampFormat)+"\n"))
	m.junk = append(m.junk, name)
}

// kill kills the daemon, or the machine.
func (m *model) kill(t *rapid.T) {
	m.runs(t)
	m.note("kill")
	m.crashes++
	m.d.kill()
	m.d = nil
	m.must(eventually(m.unlocked)) // a reader takes the daemon for alive until then, and its record files may be late
	m.cut()
	lost := m.tree()
	defer func() { m.must(lost.Close()) }()
	for id, op := range m.ops {
		rec, err := lost.ReadRecord(id)
		m.must(err)
		op.either = op.either || op.restless && op.want.Live() && len(m.taken(id)) > 0
		if op.restless && op.unsure {
			m.forgive(lost, id, op, rec)
		}
	}
	m.junk = slices.DeleteFunc(m.junk, func(name string) bool {
		_, err := os.Lstat(filepath.Join(m.r.dir, "jobs", name))
		return errors.Is(err, os.ErrNotExist) && filepath.Base(filepath.Dir(m.r.dir)) != "" // lost with the power
	})
}

// unlocked checks that no process holds the lock of the storage. A child of a killed daemon holds it for a moment if it
// was made and has not executed its program yet.
func (m *model) unlocked() (err error) {
	f, err := os.Open(filepath.Join(m.r.dir, "jobdir.lock"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return files.Flock(f, unix.LOCK_SH|unix.LOCK_NB)
}

// forgive checks whether an unacknowledged change by a person survived. If not, the operation keeps its
// earlier state.
func (m *model) forgive(tree *statefs.Tree, id statefs.ID, op *expected, rec *statefs.Record) {
	sight, err := tree.ObserveAll(id)
	m.must(err)
	op.unsure = false
	switch {
	case m.stillRequested(id, op.want) || rec.Status.Terminal() || len(sight.States) == 0:
		return // the request exists, or was carried out
	case journaled() && !slices.Contains(sight.States, rec.Status):
		// A change that a crash has left in the journal counts, unless a person moved the marker after it.
		op.either = true
	case slices.Contains(sight.States, statefs.Paused) || slices.Contains(sight.States, statefs.Running) ||
		slices.Contains(sight.States, statefs.Queued):
		op.want = statefs.Running
		if slices.Contains(sight.States, statefs.Paused) {
			op.want = statefs.Paused
		}
		op.either = op.either || len(m.taken(id)) > 0 // an earlier request may come back instead
	}
}

// stillRequested reports whether the request that leads to a state survived a power cut.
func (m *model) stillRequested(id statefs.ID, want statefs.State) bool {
	for _, file := range m.taken(id) {
		for ask, state := range wished {
			if state == want && filepath.Base(file) == statefs.RequestName(id, ask) {
				return true
			}
		}
	}
	return false
}

// taken returns the requests that a daemon had taken; a power cut may have restored one in jobs/.
func (m *model) taken(id statefs.ID) []string {
	found, err := filepath.Glob(filepath.Join(m.r.dir, "taken", id.String()+".*"))
	m.must(err)
	back, err := filepath.Glob(filepath.Join(m.r.dir, "jobs", id.String()+".*_requested"))
	m.must(err)
	return append(found, back...)
}

// stop shuts the daemon down properly.
func (m *model) stop(t *rapid.T) {
	m.runs(t)
	m.note("stop")
	m.must(m.d.cmd.Process.Signal(os.Interrupt))
	select {
	case <-m.d.ended:
		m.must(m.d.err)
	case <-time.After(patience):
		m.fail(errors.New("the daemon does not end"))
	}
	m.d.Close()
	m.d = nil
}

// settle waits until every operation has its expected state.
func (m *model) settle(t *rapid.T) {
	m.runs(t)
	m.note("settle")
	tree := m.tree()
	defer func() { m.must(tree.Close()) }()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for id, op := range m.ops {
		for err := op.holds(tree, id); err != nil; err = op.holds(tree, id) {
			select {
			case <-tick.C:
				continue
			case <-deadline:
				m.fail(fmt.Errorf("%s: %w", id, err))
			}
		}
		op.restless, op.unsure, op.aside, op.either = false, false, false, false
	}
}

func (op *expected) holds(tree *statefs.Tree, id statefs.ID) error {
	sight, err := tree.ObserveAll(id)
	if err != nil {
		return err
	}
	rec, err := tree.ReadRecord(id)
	if err != nil {
		return err
	}
	if op.either && (rec.Status == statefs.Running || rec.Status == statefs.Paused) &&
		slices.Equal(sight.States, []statefs.State{rec.Status}) {
		op.want = rec.Status
	}
	if rec.Status != op.want {
		return fmt.Errorf("its record says %s (%s, %+v), want %s", rec.Status, rec.Reason, rec.Error, op.want)
	}
	if op.want.Terminal() {
		if len(sight.States) > 0 {
			return fmt.Errorf("it has ended as %s and has the markers %q", op.want, sight.States)
		}
		return nil
	}
	if len(sight.States) != 1 || sight.States[0] != op.want {
		return fmt.Errorf("its markers are %q, want %s", sight.States, op.want)
	}
	return nil
}

// conclude compares all operations once more, and ends them.
func (m *model) conclude() {
	m.t.Helper()
	if m.d == nil {
		m.start()
	}
	m.settle(m.t)
	tree := m.tree()
	defer func() { m.must(tree.Close()) }()
	m.must(errors.Join(checkRecords(m.r.dir), m.r.checkEffects(tree)))
	for _, name := range m.junk {
		_, err := os.Lstat(filepath.Join(m.r.dir, "jobs", name))
		m.must(err)
	}
	for _, id := range slices.SortedFunc(maps.Keys(m.ops),
		func(a, b statefs.ID) int { return strings.Compare(a.String(), b.String()) }) {
		if op := m.ops[id]; op.want.Live() {
			_, err := m.d.Request(m.r.t.Context(), id, statefs.Cancel, patience)
			m.must(err)
			op.want = statefs.Cancelled
		}
	}
	m.settle(m.t)
	kept, err := filepath.Glob(filepath.Join(m.r.dir, "corrupt", "*"))
	m.must(err)
	if len(kept) > 0 {
		m.fail(fmt.Errorf("corrupt/ holds %q", kept))
	}
	m.stop(m.t)
}
