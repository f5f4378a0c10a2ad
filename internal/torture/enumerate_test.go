package torture

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobdir/jobdir/cli"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/internal/faultfs"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// crash is a possible state of a disk after a power cut, with the acknowledgements until the cut.
type crash struct {
	image *faultfs.Image
	at    int
}

// TestEveryCrashPoint plays each scenario once, cuts the journal of its disk after each operation, starts a
// daemon on each state that each durability model allows there, and compares it with the acknowledgements
// until then. With five unsynced changes or fewer it tests all subsets; with more, 16 random ones. The short
// form tests some of the states.
func TestEveryCrashPoint(t *testing.T) {
	t.Parallel()
	if err := faultfs.CanMount(); err != nil {
		t.Skip(err)
	}
	var states, points atomic.Int64
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		t.Run(name, func(inner *testing.T) {
			inner.Parallel()
			cuts, recovered := crashEverywhere(inner, name, prooftest.EveryState(), t.Failed)
			points.Add(int64(cuts))
			states.Add(int64(recovered))
		})
	}
	t.Cleanup(func() { // after all scenarios
		figures.add(t, "scenarios", len(scenarios))
		figures.add(t, "crash points", int(points.Load()))
		figures.add(t, "different crash states recovered from", int(states.Load()))
	})
}

// crashEverywhere plays a scenario, and starts a daemon on all crash states, or on some of them. It returns
// the number of points and states. It starts no more daemons once enough reports that another scenario has
// failed.
func crashEverywhere(t *testing.T, name string, every bool, enough func() bool) (cuts, states int) {
	t.Helper()
	if enough() {
		return 0, 0
	}
	disk, all := perform(t, scenarios[name])
	crashes, cuts := crashesOf(disk, all)
	t.Logf("%d operations of the disk, %d different states", cuts-1, len(crashes))
	if step := len(crashes)/prooftest.Count(4, 12, 12) + 1; !every {
		some := crashes[:0:0]
		for i := disk.Len() % step; i < len(crashes); i += step {
			some = append(some, crashes[i])
		}
		crashes = some
	}
	var wg sync.WaitGroup
	next := make(chan crash)
	for range max(2, runtime.NumCPU()) {
		wg.Go(func() {
			for c := range next {
				if err := recoverFrom(t, c, all); err != nil {
					keep := filepath.Join(os.TempDir(), fmt.Sprintf("jobdir-crash-%d", time.Now().UnixNano()))
					_ = errors.Join(os.Mkdir(keep, 0o700), c.image.Materialise(keep))
					t.Errorf("%s: %v\nthe state is kept in %s\n%s", c.image.Model, err, keep, journalUpTo(disk, c.at))
				}
			}
		})
	}
	for _, c := range crashes {
		if enough() {
			break
		}
		next <- c
	}
	close(next)
	wg.Wait()
	return cuts, len(crashes)
}

// crashesOf returns the different states after each operation, under all models. A state counts again if
// there was an acknowledgement in between.
func crashesOf(disk *faultfs.Disk, all []acknowledgement) (crashes []crash, cuts int) {
	type key struct {
		hash [sha256.Size]byte
		told int
	}
	seen := make(map[key]bool)
	for replay := disk.Replay(); ; {
		for image := range replay.Images(faultfs.Everything, faultfs.Strict, faultfs.Ordered, faultfs.Subset) {
			k := key{image.Hash(), acksUntil(all, replay.At())}
			if !seen[k] {
				seen[k] = true
				crashes = append(crashes, crash{image, replay.At()})
			}
		}
		cuts++
		if !replay.Next() {
			return crashes, cuts
		}
	}
}

// acksUntil counts what was sent or answered before a point.
func acksUntil(all []acknowledgement, at int) (count int) {
	for _, what := range all {
		if what.sent <= at {
			count++
		}
		if what.answered <= at {
			count++
		}
	}
	return count
}

func journalUpTo(disk *faultfs.Disk, at int) string {
	var lines strings.Builder
	for i, op := range disk.Journal()[max(0, at-30):at] {
		fmt.Fprintf(&lines, "%5d %s\n", max(0, at-30)+i, op)
	}
	return lines.String()
}

// recoverFrom starts a daemon on a crash state and returns contradictions to the acknowledgements.
func recoverFrom(t *testing.T, c crash, all []acknowledgement) (err error) {
	t.Helper()
	top, err := os.MkdirTemp(fastDir(), "jobdir-crash") //nolint:usetesting // hundreds of them: each goes at once
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(top)) }()
	if err := c.image.Materialise(top); err != nil {
		return err
	}
	dir := filepath.Join(top, "storage")
	expected := expect(all, c.at)
	if err := expected.beforeStart(dir); err != nil {
		return fmt.Errorf("before a start: %w", err)
	}
	config := handlerConfig(dir)
	config.Handlers = maps.Clone(config.Handlers)
	begun := new(begunSteps)
	config.Handlers["step"] = begun.handler()
	serving := make(chan cli.Serving, 1)
	config.Serving = func(s cli.Serving) { serving <- s }
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cli.Serve(ctx, config) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	select {
	case s := <-serving:
		c, err := client.New(s.Addresses[0], client.WithReconnectTimeout(0))
		if err != nil {
			return err
		}
		defer c.Close()
		return errors.Join(expected.afterStart(dir), expected.stepsEnd(c, dir, begun), expected.goesOn(c, "count"))
	case err := <-ended:
		ended <- nil
		return fmt.Errorf("the daemon does not start: %w", err)
	case <-time.After(patience):
		return errors.New("the daemon does not serve")
	}
}

// fastDir returns a folder in memory if there is one.
func fastDir() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return os.TempDir()
}

// expectation is what was acknowledged about one operation until a cut.
type expectation struct {
	submitted bool
	wants     statefs.Action
	unsure    bool // a request was not yet answered
	cancelled bool // a cancel was requested
	run       int
	end       *client.Footer
	begun     map[string]int // the steps that have started, each with the number of its run
	steps     stepsOnDisk    // their state after the crash
	dropping  map[int]bool   // deliveries for which a drop was requested, by position
	dropped   map[int]bool   // dropped deliveries
}

type expectations struct {
	ops     map[statefs.ID]*expectation
	lists   [][]statefs.ID // whose submit had been sent
	highest uint64
}

// expect collects the acknowledgements up to a number of disk operations.
func expect(all []acknowledgement, at int) *expectations {
	e := &expectations{ops: make(map[statefs.ID]*expectation)}
	for _, what := range all {
		if what.sent > at {
			continue
		}
		if what.list != nil {
			e.listed(what.list, what.answered <= at)
			continue
		}
		op := e.ops[what.id]
		if op == nil {
			op = &expectation{}
			e.ops[what.id] = op
		}
		if what.action == statefs.Cancel {
			op.cancelled = true
		}
		if what.delivery > 0 {
			op.requested(what, what.answered <= at)
			continue
		}
		if what.answered > at {
			op.unsure = op.unsure || what.action != ""
			continue
		}
		e.highest = max(e.highest, what.id.Sequence())
		op.run = max(op.run, what.run)
		if what.step != "" {
			if op.begun == nil {
				op.begun = make(map[string]int)
			}
			op.begun[what.step] = what.run
		}
		switch {
		case what.end != nil:
			op.end = what.end
		case what.action != "":
			op.wants = what.action
		case what.run == 0:
			op.submitted = true
		}
	}
	return e
}

// requested records a request for a delivery that was sent, and perhaps answered.
func (op *expectation) requested(what acknowledgement, answered bool) {
	if !what.drops {
		return
	}
	if op.dropping == nil {
		op.dropping, op.dropped = make(map[int]bool), make(map[int]bool)
	}
	op.dropping[what.delivery] = true
	op.dropped[what.delivery] = op.dropped[what.delivery] || answered
}

// listed records a list of submits that was sent, and perhaps answered.
func (e *expectations) listed(ids []statefs.ID, answered bool) {
	e.lists = append(e.lists, ids)
	for _, id := range ids {
		op := e.ops[id]
		if op == nil {
			op = &expectation{}
			e.ops[id] = op
		}
		op.submitted = answered
		if answered {
			e.highest = max(e.highest, id.Sequence())
		}
	}
}

// inLists returns the operations of the lists in taken/: their records may be missing, because the next start
// writes them.
func inLists(dir string) (map[statefs.ID]bool, error) {
	found := make(map[statefs.ID]bool)
	for _, suffix := range []string{".batch", ".records"} {
		files, err := filepath.Glob(filepath.Join(dir, "taken", "*"+suffix))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			for line := range bytes.Lines(data) {
				var rec struct {
					ID statefs.ID `json:"id"`
				}
				if err := json.Unmarshal(line, &rec); err != nil {
					return nil, fmt.Errorf("list %s is torn: %q: %w", file, line, err)
				}
				found[rec.ID] = true
			}
		}
	}
	return found, nil
}

// whole checks that each list is complete or absent.
func (e *expectations) whole(tree *statefs.Tree) error {
	var errs []error
	for _, ids := range e.lists {
		var there []statefs.ID
		for _, id := range ids {
			if _, err := tree.ReadRecord(id); err == nil {
				there = append(there, id)
			} else if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		if len(there) != 0 && len(there) != len(ids) {
			errs = append(errs, fmt.Errorf("of a list of %d there are %v", len(ids), there))
		}
	}
	return errors.Join(errs...)
}

// beforeStart checks the storage as the crash left it.
func (e *expectations) beforeStart(dir string) error {
	lists, err := inLists(dir)
	if err != nil {
		return err
	}
	lines, err := left(dir)
	if err != nil {
		return err
	}
	errs := []error{checkRecordsBut(dir, lists), e.checkDeliveries(dir, false)}
	for id, op := range e.ops {
		data, err := recordOf(dir, id, lines)
		if err != nil {
			if (op.submitted && !lists[id]) || op.run > 0 || op.end != nil {
				errs = append(errs, fmt.Errorf("%s was acknowledged: %w", id, err))
			}
			continue
		}
		// Work that has started is never in a state that claims that it has not.
		var rec struct {
			Run   int         `json:"run"`
			Steps stepsOnDisk `json:"steps"`
		}
		err = json.Unmarshal(data, &rec)
		if err != nil && lists[id] {
			err, rec.Run = nil, 0 // the next start writes it again, without a run
		}
		if _, running := os.Lstat(filepath.Join(dir, "jobs", statefs.MarkerName(id, statefs.Running))); rec.Run == 0 &&
			len(rec.Steps) == 0 && running == nil {
			rec.Run = 1 // for the first run of a handler only the marker records the start
		}
		if op.run > 0 && err != nil || rec.Run < op.run {
			errs = append(errs, fmt.Errorf("%s has begun run %d, and its record says %d: %w", id, op.run, rec.Run, err))
		}
		op.steps = rec.Steps
		errs = append(errs, op.steps.check(op.begun))
	}
	return errors.Join(errs...)
}

// afterStart checks the storage after the start of the daemon.
func (e *expectations) afterStart(dir string) error {
	tree, err := statefs.Open(dir, statefs.Options{Durability: statefs.Process})
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }() // opened for reading
	var errs []error
	for id, op := range e.ops {
		if !op.submitted {
			continue
		}
		if err := op.settles(tree, id); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", id, err))
		}
	}
	errs = append(errs, e.whole(tree), checkRecords(dir), eventually(func() error { return e.checkDeliveries(dir, true) }))
	corrupt, err := filepath.Glob(filepath.Join(dir, "corrupt", "*"))
	errs = append(errs, err)
	for _, name := range corrupt {
		for id, op := range e.ops {
			if op.submitted && strings.Contains(name, id.String()) {
				errs = append(errs, fmt.Errorf("corrupt/ holds %s", filepath.Base(name)))
			}
		}
	}
	return errors.Join(errs...)
}

// settles waits until an operation has its expected state, and returns why it has not.
func (op *expectation) settles(tree *statefs.Tree, id statefs.ID) error {
	return eventually(func() error { return op.holds(tree, id) })
}

// eventually repeats a check until it returns no error: the daemon is at work, and may change two files while
// the check reads one after the other.
func eventually(ask func() error) (err error) {
	deadline := time.After(patience / 4) // for each operation of one state of many
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if err = ask(); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline:
			return err
		}
	}
}

func (op *expectation) holds(tree *statefs.Tree, id statefs.ID) error {
	rec, err := tree.ReadRecord(id)
	if err != nil {
		return err
	}
	sight, err := tree.ObserveAll(id)
	if err != nil {
		return err
	}
	switch {
	case op.end != nil:
		var shown bytes.Buffer
		if err := json.Compact(&shown, op.end.Raw); err != nil || string(rec.Footer) != shown.String() {
			return fmt.Errorf("its end was shown as %s, and now is %s", op.end.Raw, rec.Footer)
		}
	case rec.Status == statefs.Cancelled && !op.cancelled:
		return fmt.Errorf("it is cancelled, and nobody asked for that: %s", rec.Reason)
	case rec.Status == statefs.Failed:
		return fmt.Errorf("it failed: %+v", rec.Error)
	}
	if rec.Status.Terminal() && !rec.Trailing {
		if len(sight.States) > 0 {
			return fmt.Errorf("it is %s and has the marker %q", rec.Status, sight.States)
		}
		return nil
	}
	if len(sight.States) != 1 {
		return fmt.Errorf("it is %s and has the markers %q", rec.Status, sight.States)
	}
	if rec.Trailing {
		rec.Status = statefs.Trailing
	}
	if sight.States[0] != rec.Status {
		return fmt.Errorf("its marker says %s and its record %s", sight.States[0], rec.Status)
	}
	return op.wanted(sight.States[0])
}

func (op *expectation) wanted(state statefs.State) error {
	if op.unsure {
		return nil
	}
	switch op.wants {
	case statefs.Pause:
		if state != statefs.Paused {
			return fmt.Errorf("a pause was acknowledged, and it is %s", state)
		}
	case statefs.Resume:
		if state == statefs.Paused {
			return errors.New("a resume was acknowledged, and it is paused")
		}
	case statefs.Cancel, statefs.ForceCancel:
		return fmt.Errorf("a cancel was acknowledged, and it is %s", state)
	case statefs.Retry, statefs.Skip, statefs.Set, statefs.Approve, statefs.Reject, statefs.Prioritize,
		statefs.Delete, statefs.Pin:
	}
	return nil
}

// goesOn submits once more: the storage works, and no number is issued twice.
func (e *expectations) goesOn(c *client.Client, job string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	op, err := c.Submit(ctx, "t", job, nil)
	if err != nil {
		return err
	}
	if op.ID.Sequence() <= e.highest {
		return fmt.Errorf("%s has a number that was given before", op.ID)
	}
	_, err = c.Wait(ctx, op.ID)
	return err
}
