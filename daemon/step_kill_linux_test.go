package daemon

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// Each command of these steps writes a line to a ledger outside the storage when it begins and when
// it ends.
const killJobs = `
group: test
name: killed
params: {ledger: {type: string, required: true}, work: {type: string, required: true}}
env: {LEDGER: "${params.ledger}"}
steps:
  - {name: a, run: [sh, -c, "${params.work}"]}
  - {name: b, needs: [a], run: [sh, -c, "${params.work}"]}
  - {name: c, needs: [b], run: [sh, -c, "${params.work}"]}
  - {name: d, needs: [c], run: [sh, -c, "${params.work}"]}
  - {name: aside, needs: [a], optional: true, run: [sh, -c, "${params.work}"]}
  - {name: after, needs: [d, aside], optional: true, run: [sh, -c, "${params.work}"]}
`

// ledgerWork is the script of each step; a file beside the ledger delays its end.
const ledgerWork = `echo "begin $JOBDIR_STEP" >>"$LEDGER"; sleep 0.02; while test -e "$LEDGER.$JOBDIR_STEP"; do sleep 0.02; done; echo "end $JOBDIR_STEP" >>"$LEDGER"`

// ledgered submits an operation and returns it with its ledger.
func (k *kept) ledgered(name string) (id statefs.ID, ledger string) {
	k.t.Helper()
	ledger = filepath.Join(k.t.TempDir(), name)
	must(k.t, os.WriteFile(ledger, nil, 0o600))
	params, err := json.Marshal(map[string]string{"ledger": ledger, "work": ledgerWork})
	must(k.t, err)
	return k.submit("killed", string(params)), ledger
}

func linesOf(t *testing.T, ledger string) []string {
	t.Helper()
	data, err := os.ReadFile(ledger)
	must(t, err)
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// checkLedger checks that each step has begun and ended once, after all steps that it needs. The
// steps in again were cut off once before.
func (k *kept) checkLedger(id statefs.ID, ledger string, again ...string) {
	k.t.Helper()
	lines := linesOf(k.t, ledger)
	count := func(line string) (n int) {
		for _, l := range lines {
			if l == line {
				n++
			}
		}
		return n
	}
	for _, n := range k.catalog.Get("test", "killed").Graph() {
		want := 1
		if slices.Contains(again, n.Name) {
			want = 2
		}
		if count("begin "+n.Name) != want || count("end "+n.Name) != 1 {
			k.t.Errorf("%s: step %s has begun %d times and ended %d times: %q", id, n.Name, count("begin "+n.Name),
				count("end "+n.Name), lines)
		}
		for _, need := range n.Needs {
			if slices.Index(lines, "begin "+n.Name) < slices.Index(lines, "end "+need) {
				k.t.Errorf("%s: step %s has begun before the end of %s: %q", id, n.Name, need, lines)
			}
		}
	}
	rec := k.awaitEnd(id)
	if rec.Result != statefs.Success || rec.Trailing ||
		slices.ContainsFunc(rec.Steps, func(s steps.Step) bool { return s.Status != steps.Succeeded }) {
		k.t.Errorf("%s: %s, %s", id, rec.Result, statuses(rec))
	}
	ends := 0
	for _, row := range k.ends(0) {
		if row.ID == id && row.Status.Terminal() {
			ends++
		}
	}
	if ends != 1 {
		k.t.Errorf("%s is in the feed %d times", id, ends)
	}
}

// TestStepsOutliveKilledDaemons repeatedly kills the daemon while operations run through their
// steps: between and within steps, when only optional steps are left, and while one is paused. Each
// command begins once.
func TestStepsOutliveKilledDaemons(t *testing.T) {
	t.Parallel()
	seed := numberFrom(t, seedVariable, uint64(time.Now().UnixNano()))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s=%d", seedVariable, seed)
		}
	})
	random := rand.New(rand.NewPCG(seed, 1))
	for range numberFrom(t, roundsVariable, 2) {
		k := prepareKept(t, allKept+"---"+killJobs)
		ids, ledgers := make([]statefs.ID, 3), make([]string, 3)
		for i := range ids {
			ids[i], ledgers[i] = k.ledgered(strconv.Itoa(i))
		}
		for kill := range 14 {
			child := k.child()
			if kill == 4 {
				k.touch(ids[0], statefs.Pause)
			}
			before := len(linesOf(t, ledgers[kill%3]))
			enough := time.After(time.Duration(random.IntN(300)) * time.Millisecond)
			tick := time.NewTicker(time.Millisecond)
			for waits := true; waits; { // until a step has begun or ended, or nothing happens
				select {
				case <-tick.C:
					waits = len(linesOf(t, ledgers[kill%3])) == before
				case <-enough:
					waits = false
				}
			}
			tick.Stop()
			<-time.After(time.Duration(random.IntN(4)) * time.Millisecond)
			k.kill(child)
		}
		k.start()
		if sight, err := k.tree.ObserveAll(ids[0]); err == nil && len(sight.States) > 0 {
			k.touch(ids[0], statefs.Resume)
		}
		for i, id := range ids {
			k.awaitEnd(id)
			k.checkLedger(id, ledgers[i])
		}
		must(t, k.stop())
	}
}

// TestStepsAfterTheKeeperIsKilled kills the keeper with the daemon: the steps that were running
// begin again, the steps before them do not. The same holds for trailing optional steps.
func TestStepsAfterTheKeeperIsKilled(t *testing.T) {
	t.Parallel()
	for _, cut := range [][]string{{"c", "aside"}, {"after"}} {
		t.Run(cut[0], func(t *testing.T) {
			t.Parallel()
			k := prepareKept(t, allKept+"---"+killJobs)
			child := k.child()
			id, ledger := k.ledgered("ledger")
			for _, name := range cut {
				must(t, os.WriteFile(ledger+"."+name, nil, 0o600))
			}
			for _, name := range cut {
				k.poll(name+" has begun", func() bool { return slices.Contains(linesOf(t, ledger), "begin "+name) })
			}
			keepers := k.keepers()
			k.kill(child)
			for _, pid := range keepers {
				must(t, unix.Kill(pid, unix.SIGKILL))
			}
			k.poll("the keepers have ended", func() bool { return len(k.keepers()) == 0 })
			k.start()
			for _, name := range cut {
				k.poll(name+" has begun again", func() bool {
					return len(slices.DeleteFunc(linesOf(t, ledger), func(line string) bool { return line != "begin "+name })) == 2
				})
				must(t, os.Remove(ledger+"."+name))
			}
			k.awaitEnd(id)
			k.checkLedger(id, ledger, cut...)
		})
	}
}
