package torture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/statefs"
)

// shippedJob has a different result for each operation, and one target.
const shippedJob = `
group: t
name: ship
params: {n: {type: integer, required: true}}
run: [sh, -c, 'echo "{\"n\": $JOBDIR_PARAM_N}" >$JOBDIR_RESULT; echo line']
deliver:
  - %s
`

// receiver is a target in its own process.
type receiver interface {
	// Start returns when the target accepts requests, at the same address and with its earlier data.
	Start(ctx context.Context) error
	// Kill kills it with SIGKILL.
	Kill()
}

// shipment is a number of results that are delivered to a target while the daemon or the target is killed
// repeatedly.
type shipment struct {
	*rig
	tree    *statefs.Tree
	d       *daemon
	to      receiver
	args    []string           // of each daemon
	ids     map[statefs.ID]int // all submitted operations, with their parameter
	daemons []*daemon
	// killsTarget and killsDaemon select what is killed in each round.
	killsTarget, killsDaemon bool
	ofTarget, ofDaemon       int // kills
}

// ship delivers count results to a running target, and returns when nothing is left to do. target is the line
// of the definition.
func ship(t *testing.T, target string, count int, s *shipment) {
	t.Helper()
	s.rig = newRig(t, filepath.Join(t.TempDir(), "storage"))
	must(t, os.WriteFile(filepath.Join(s.jobs, "jobs.yaml"), fmt.Appendf(nil, shippedJob, target), 0o600))
	s.ids = make(map[statefs.ID]int)
	s.start()
	var err error
	s.tree, err = statefs.Open(s.dir, statefs.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, s.tree.Close()) })
	const share = 20
	for len(s.ids) < count {
		s.round(s.submit(min(share, count-len(s.ids))))
	}
	deadline := time.Now().Add(patience)
	for s.open() {
		if time.Now().After(deadline) {
			t.Fatalf("there still is something to deliver: %v\nthe daemon said: %s", s.entries(), s.d.stderr)
		}
		s.round(statefs.ID{})
	}
	s.checkRecords()
	until(t, "the lists of what was submitted are swept", func() bool {
		files, err := filepath.Glob(filepath.Join(s.dir, "taken", "*"))
		return err == nil && len(files) == 0
	})
	s.d.stop(t)
	wantEmpty(t, s.dir, "jobs", "taken", "tmp", "corrupt")
	figures.add(t, "results delivered, each under its name and no other", len(s.ids))
	if s.killsTarget {
		figures.add(t, "kills of the target", s.ofTarget)
	}
	if s.killsDaemon {
		figures.add(t, "kills of the daemon", s.ofDaemon)
	}
	if !s.killsDaemon { // a killed daemon may not have logged every attempt
		figures.add(t, "tries that were cut off between connection and answer", s.cutOff())
	}
}

// start starts a daemon and keeps its output.
func (s *shipment) start() {
	s.t.Helper()
	s.d = s.startDelivering(append([]string{"--sweep-interval", "1s"}, s.args...)...)
	s.daemons = append(s.daemons, s.d)
}

// submit submits a list, and returns its first operation.
func (s *shipment) submit(count int) statefs.ID {
	s.t.Helper()
	list := make([]client.Submission, count)
	for i := range list {
		list[i] = client.Submission{Job: "t/ship", Params: map[string]int{"n": len(s.ids) + i}}
	}
	made, err := s.d.SubmitList(s.t.Context(), list)
	must(s.t, err)
	for _, m := range made {
		s.ids[m.ID] = len(s.ids)
	}
	return made[0].ID
}

// round lets deliveries run for up to a second, kills, restarts what was killed, and retries as a person does
// who knows that the target is back. first is an operation that was just submitted, or none: every other kill
// happens while it and its neighbours are being delivered.
func (s *shipment) round(first statefs.ID) {
	s.t.Helper()
	longest := time.Second
	if !first.IsZero() && s.random.IntN(2) == 0 {
		ctx, cancel := context.WithTimeout(s.t.Context(), patience)
		_, err := s.d.Wait(ctx, first)
		cancel()
		must(s.t, err)
		longest = 100 * time.Millisecond
	}
	s.pause(s.d, longest)
	if s.killsTarget {
		s.to.Kill()
		s.ofTarget++
	}
	if s.killsDaemon {
		s.d.kill()
		s.ofDaemon++
		s.start()
	}
	if s.killsTarget {
		must(s.t, s.to.Start(s.t.Context()))
		s.retryOne()
	}
}

// retryOne retries one delivery immediately, because a target that was down is otherwise probed only now and
// then. After its success all others follow.
func (s *shipment) retryOne() {
	s.t.Helper()
	if names := s.entries(); len(names) > 0 {
		must(s.t, s.tree.Outbox.Request(names[s.random.IntN(len(names))], statefs.RetryDelivery, statefs.Args{}))
	}
}

// entries returns the content of the outbox. An entry that waits for a person fails the test: no kill counts
// as a refusal.
func (s *shipment) entries() []statefs.EntryName {
	s.t.Helper()
	files, err := s.tree.Outbox.List()
	must(s.t, err)
	if len(files.Manual)+len(files.Others) > 0 {
		s.t.Fatalf("in the outbox are %v and %v\nthe daemon said: %s", files.Manual, files.Others, s.d.stderr)
	}
	return files.Pending
}

// open reports whether a delivery is pending, now or later.
func (s *shipment) open() bool {
	s.t.Helper()
	for id := range s.ids {
		rec, err := s.tree.ReadRecord(id)
		must(s.t, err)
		if !rec.Status.Terminal() || len(rec.Deliveries) != 1 || rec.Deliveries[0].State != statefs.DeliveryDelivered {
			return true
		}
	}
	return len(s.entries()) > 0
}

// checkRecords checks that each operation ended with its own result, that there are no other operations, and
// that the outbox is empty.
func (s *shipment) checkRecords() {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "operations", "*", "t-ship_*.json"))
	must(s.t, err)
	if len(files) != len(s.ids) {
		s.t.Errorf("there are %d records of %d operations", len(files), len(s.ids))
	}
	for id, n := range s.ids {
		rec, err := s.tree.ReadRecord(id)
		must(s.t, err)
		if rec.Status != statefs.Completed || !strings.Contains(string(rec.Footer), fmt.Sprintf(`"n":%d`, n)) {
			s.t.Errorf("%s, number %d, is %s: %s", id, n, rec.Status, rec.Footer)
		}
	}
	until(s.t, "nothing is in the outbox", func() bool {
		left, err := os.ReadDir(s.tree.Outbox.Dir())
		must(s.t, err)
		return len(left) == 0
	})
	must(s.t, checkRecords(s.dir))
}

// cutOff counts the attempts that failed after the connection to the target was made.
func (s *shipment) cutOff() (count int) {
	for _, d := range s.daemons {
		for line := range strings.Lines(d.stderr.String()) {
			if strings.Contains(line, "could not be delivered") && !strings.Contains(line, "connection refused") {
				count++
			}
		}
	}
	return count
}
