package torture

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/internal/prooftest"
	"github.com/jobdir/jobdir/statefs"
)

// soakEnv is how long TestSoak runs, such as 1h, with a kill every soakKill. `make soak` sets it. Without it the
// test is short, and reports memory and disk without a verdict.
const (
	soakEnv  = "JOBDIR_SOAK"
	soakKill = 30 * time.Second
)

// The load of the soak: it runs on a machine that has other work too, and what it leaves must stay bounded.
const (
	soakPace     = 20 * time.Millisecond  // between two submits of a client
	soakListPace = 500 * time.Millisecond // between two lists
	soakListSize = 20
	soakLive     = 500  // submitted and not ended; the clients wait for the daemon then
	soakKept     = 2000 // ended operations that the retention keeps
	soakSleepers = 6
)

// soakJobs end at once, except endless (a handler) and sleep (a command). Their deaths by the kills count too little
// to stop them; those of fragile, which has the default crash limit, do.
const soakJobs = `
group: soak
name: handler
unique: {on_hit: off}
crash_limit: {burst: 100, within: 1s}
params: {path: {type: string, default: %[1]q}, workers: {type: integer, default: 1}}
handler: checksum
---
group: soak
name: command
unique: {on_hit: off}
crash_limit: {burst: 100, within: 1s}
run: [sh, -c, 'echo line']
---
group: soak
name: items
unique: {on_hit: off}
crash_limit: {burst: 100, within: 1s}
items: {range: [1, 3]}
run: [echo, '${item}']
---
group: soak
name: steps
unique: {on_hit: off}
crash_limit: {burst: 100, within: 1s}
params: {path: {type: string, default: %[1]q}, workers: {type: integer, default: 1}}
steps:
  - {name: one, handler: checksum}
  - {name: two, needs: [one], run: [echo, two]}
  - {name: aside, needs: [one], optional: true, handler: checksum}
---
group: soak
name: sleep
unique: {on_hit: off}
crash_limit: {burst: 100, within: 1s}
run: [sleep, '100000']
---
group: soak
name: endless
unique: {on_hit: off}
crash_limit: {burst: 100, within: 1s}
params: {files: {type: integer, default: 1000000}}
handler: streaming01
---
group: soak
name: fragile
unique: {on_hit: off}
params: {files: {type: integer, default: 1000000}}
handler: streaming01
`

// Limits of growth between the first and the last quarter.
const (
	soakGrowth      = 1.5
	soakMemorySlack = 32 << 20
	soakDiskSlack   = 64 << 20
)

// fragileDeaths is the default of crash_limit.burst.
const fragileDeaths = 5

// soak is the load and its ledger. It differs from load: it is paced, and its storage forgets old operations, so
// that the completion feed is what an acknowledgement is held against.
type soak struct {
	r *rig

	mu       sync.Mutex // guards the rest
	ops      map[statefs.ID]*soaked
	numbers  map[uint64]bool
	live     int // acknowledged, and not in the feed
	last     uint64
	sleepers []statefs.ID
}

// soaked is one operation: submitted, or ended before its submit was answered.
type soaked struct {
	job          string
	acknowledged bool
	cancelled    bool // it may have been
	end          statefs.State
}

// TestSoak has all kinds of work run for a long time while the daemon is killed again and again: nothing
// acknowledged is lost, every end is in the feed once, and neither memory nor disk grows.
func TestSoak(t *testing.T) {
	t.Parallel()
	kills, every := prooftest.Count(fragileDeaths+1, 12, 30), prooftest.Count(300*time.Millisecond, time.Second, 5*time.Second)
	long := os.Getenv(soakEnv)
	if long != "" {
		lasts, err := time.ParseDuration(long)
		must(t, err)
		kills, every = max(int(lasts/soakKill), fragileDeaths+1), soakKill
	}
	s := newSoak(t)
	l := &load{r: s.r, ledger: newLedger()} // one command that outlives every kill
	var fragile, endless statefs.ID
	var samples []soakSample
	for kill := range kills {
		d := s.r.start("--retention-count", strconv.Itoa(soakKept))
		if kill == 0 {
			l.submit(t, d, "survivor")
			until(t, "the survivor runs", func() bool { return len(s.r.begun(t)) > 0 })
			fragile, endless = s.submit(t, d, "fragile"), s.submit(t, d, "endless")
		}
		stop := s.run(d)
		select {
		case <-time.After(every):
		case <-d.ended:
			t.Fatalf("the daemon ended: %v: %s", d.err, d.stderr)
		}
		s.awaitDeath(t, fragile, kill)
		sample := s.sample(t, d)
		d.kill()
		stop()
		sample.disk = diskUsage(t, s.r.dir)
		samples = append(samples, sample)
		if long != "" {
			t.Logf("%s kill %d: %s", time.Now().Format(time.TimeOnly), kill+1, sample)
		}
		tree := s.open(t)
		if err := errors.Join(s.checkDead(tree), checkRecords(s.r.dir)); err != nil {
			t.Fatalf("after kill %d: %v\nthe daemon said: %s", kill+1, err, d.stderr)
		}
		if _, err := l.checkSurvivors(t, tree); err != nil {
			t.Fatalf("after kill %d: %v\nthe daemon said: %s", kill+1, err, d.stderr)
		}
		must(t, tree.Close())
	}
	s.conclude(t, fragile, endless)
	l.checkTicks(t)
	compareQuarters(t, samples, long != "")
	figures.add(t, "kill -9 cycles under mixed load", kills)
	figures.add(t, "operations acknowledged, and found in the completion feed once", s.acknowledged())
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{
		r:   newRig(t, filepath.Join(t.TempDir(), "storage")),
		ops: make(map[statefs.ID]*soaked), numbers: make(map[uint64]bool),
	}
	s.r.defaultCrashLimit = true
	folder := t.TempDir() // what the handlers read
	for i := range 3 {
		must(t, os.WriteFile(filepath.Join(folder, strconv.Itoa(i)), make([]byte, 1000), 0o600))
	}
	must(t, os.WriteFile(filepath.Join(s.r.jobs, "soak.yaml"), fmt.Appendf(nil, soakJobs, folder), 0o600))
	return s
}

func (s *soak) open(t *testing.T) *statefs.Tree {
	t.Helper()
	tree, err := statefs.Open(s.r.dir, statefs.Options{})
	must(t, err)
	return tree
}

// run puts load on a daemon until the returned function is called, after the daemon is gone.
func (s *soak) run(d *daemon) (stop func()) {
	ctx, cancel := context.WithCancel(s.r.t.Context())
	var clients sync.WaitGroup
	paced := func(pace time.Duration, do func(*rand.Rand) error) {
		random := rand.New(rand.NewPCG(s.r.random.Uint64(), 4))
		clients.Go(func() { s.repeat(ctx, pace, func() error { return do(random) }) })
	}
	for range 2 {
		paced(soakPace, func(random *rand.Rand) error {
			job := []string{"handler", "handler", "command", "items", "steps"}[random.IntN(5)]
			op, err := d.Submit(ctx, "soak", job, nil)
			if err == nil {
				s.accepted(job, op.ID)
			}
			return err
		})
	}
	paced(soakListPace, func(random *rand.Rand) error { return s.submitList(ctx, d, random) })
	paced(soakPace, func(random *rand.Rand) error { return s.request(ctx, d, random) })
	clients.Go(func() {
		var err error
		for err == nil { // until the daemon is gone
			err = s.follow(ctx, d)
		}
	})
	return func() { cancel(); clients.Wait() }
}

// repeat calls do at a pace, while not too much is live, until the daemon is gone.
func (s *soak) repeat(ctx context.Context, pace time.Duration, do func() error) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		full := s.live >= soakLive
		s.mu.Unlock()
		if full {
			continue
		}
		err := do()
		refused, answered := errors.AsType[*client.Error](err)
		switch {
		case err != nil && !answered:
			return
		case answered && refused.Status < 500:
			s.r.t.Errorf("refused: %v", err)
			return
		}
	}
}

func (s *soak) submitList(ctx context.Context, d *daemon, random *rand.Rand) error {
	jobs := []string{"handler", "handler", "handler", "command"}
	list := make([]client.Submission, soakListSize)
	for i := range list {
		list[i].Job = "soak/" + jobs[random.IntN(len(jobs))]
	}
	made, err := d.SubmitList(ctx, list)
	for i, one := range made {
		s.accepted(strings.TrimPrefix(list[i].Job, "soak/"), one.ID)
	}
	return err
}

// request pauses, resumes or cancels an operation that never ends, or starts another.
func (s *soak) request(ctx context.Context, d *daemon, random *rand.Rand) error {
	s.mu.Lock()
	var id statefs.ID
	few := len(s.sleepers) < soakSleepers
	at := 0
	if !few {
		at = random.IntN(len(s.sleepers))
		id = s.sleepers[at]
	}
	s.mu.Unlock()
	if few {
		job := []string{"sleep", "endless"}[random.IntN(2)]
		op, err := d.Submit(ctx, "soak", job, nil)
		if err == nil {
			s.accepted(job, op.ID)
			s.mu.Lock()
			s.sleepers = append(s.sleepers, op.ID)
			s.mu.Unlock()
		}
		return err
	}
	action := []statefs.Action{statefs.Pause, statefs.Resume, statefs.Pause, statefs.Resume, statefs.Cancel}[random.IntN(5)]
	if action == statefs.Cancel {
		s.mu.Lock()
		s.sleepers = append(s.sleepers[:at], s.sleepers[at+1:]...)
		s.ops[id].cancelled = true
		s.mu.Unlock()
	}
	if random.IntN(2) == 0 {
		return s.r.touch(id, action)
	}
	_, err := d.Request(ctx, id, action, time.Duration(random.IntN(2))*patience)
	return err
}

func (s *soak) submit(t *testing.T, d *daemon, job string) statefs.ID {
	t.Helper()
	op, err := d.Submit(t.Context(), "soak", job, nil)
	must(t, err)
	s.accepted(job, op.ID)
	return op.ID
}

// accepted records an acknowledged submit.
func (s *soak) accepted(job string, id statefs.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.numbers[id.Sequence()] {
		s.r.t.Errorf("the number of %s was given twice", id)
	}
	s.numbers[id.Sequence()] = true
	op := s.op(id)
	op.job, op.acknowledged = job, true
	if op.end == "" {
		s.live++
	}
}

// op returns an operation, under the lock.
func (s *soak) op(id statefs.ID) *soaked {
	if s.ops[id] == nil {
		s.ops[id] = new(soaked)
	}
	return s.ops[id]
}

func (s *soak) acknowledged() (count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range s.ops {
		if op.acknowledged {
			count++
		}
	}
	return count
}

// follow reads the next ends of the completion feed.
func (s *soak) follow(ctx context.Context, d *daemon) error {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	ends, last, err := d.Finished(ctx, last, time.Second)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = last
	for _, end := range ends {
		op := s.op(end.ID)
		switch {
		case end.NeedsPerson:
			if op.job != "fragile" {
				s.r.t.Errorf("%s (%s) needs a person: %+v", end.ID, op.job, end)
			}
		case op.end != "":
			s.r.t.Errorf("%s ended twice: %s and %s", end.ID, op.end, end.State)
		default:
			op.end = end.State
			if op.acknowledged {
				s.live--
			}
		}
	}
	return nil
}

// awaitDeath waits until a kill is one more death of the operation with the default crash limit, or that limit has
// stopped it.
func (s *soak) awaitDeath(t *testing.T, id statefs.ID, deaths int) {
	t.Helper()
	tree := s.open(t)
	defer func() { must(t, tree.Close()) }()
	until(t, fmt.Sprintf("%s runs after %d deaths, or is failed_manual after %d", id, deaths, fragileDeaths), func() bool {
		state, err := tree.State(id)
		rec, recErr := tree.ReadRecord(id)
		switch {
		case err != nil || recErr != nil:
			return false
		case deaths >= fragileDeaths:
			return state == statefs.FailedManual
		case deaths == 0: // the first run of a handler is not in its record
			return state == statefs.Running
		}
		return state == statefs.Running && rec.Run == deaths+1
	})
}

// checkDead checks the storage without a daemon: each operation that was acknowledged and is not in the feed has a
// record that can be read, and at most one marker.
func (s *soak) checkDead(tree *statefs.Tree) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for id, op := range s.ops {
		if !op.acknowledged || op.end != "" {
			continue
		}
		rec, err := tree.ReadRecord(id)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s (%s) is acknowledged: %w", id, op.job, err))
			continue
		}
		seen, err := tree.ObserveAll(id)
		if err != nil || len(seen.States) > 1 || rec.Status.Live() && len(seen.States) == 0 {
			errs = append(errs, fmt.Errorf("%s (%s) is %s and has the markers %q: %w", id, op.job, rec.Status, seen.States, err))
		}
	}
	return errors.Join(errs...)
}

// conclude ends everything, and holds each acknowledgement against the feed.
func (s *soak) conclude(t *testing.T, fragile, endless statefs.ID) {
	t.Helper()
	d := s.r.start("--sweep-interval", "1s")
	tree := s.open(t)
	s.checkFragile(t, tree, fragile)
	until(t, "the endless handler runs again", func() bool {
		state, err := tree.State(endless)
		rec, recErr := tree.ReadRecord(endless)
		return err == nil && recErr == nil && state == statefs.Running && rec.Run > 1
	})
	until(t, "nothing is live", func() bool {
		listing, err := tree.List()
		must(t, err)
		for _, marker := range listing.Markers {
			s.endOne(t, tree, d, marker.ID)
		}
		return len(listing.Markers) == 0
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for left := 1; left > 0; {
		must(t, s.follow(ctx, d))
		s.mu.Lock()
		left = s.live
		s.mu.Unlock()
	}
	s.checkEnds(t)
	until(t, "no process is left", func() bool { return len(s.r.commands()) == 0 })
	until(t, "no request is left", func() bool {
		listing, err := tree.List()
		return err == nil && len(listing.IDs()) == 0
	})
	// A later sweep removes the files of the lists.
	until(t, "no list is left", func() bool {
		left, err := os.ReadDir(filepath.Join(s.r.dir, "taken"))
		return err == nil && len(left) == 0
	})
	must(t, tree.Close())
	d.stop(t)
	must(t, checkRecords(s.r.dir))
	wantEmpty(t, s.r.dir, "jobs", "tmp", "taken")
}

// checkFragile checks that the default crash limit has stopped an operation as docs/retries.md says.
func (s *soak) checkFragile(t *testing.T, tree *statefs.Tree, id statefs.ID) {
	t.Helper()
	rec, err := tree.ReadRecord(id)
	must(t, err)
	if rec.Status != statefs.FailedManual || rec.Run != fragileDeaths || len(rec.DiedAt) != fragileDeaths ||
		rec.Reason != fmt.Sprintf("crash_limit: it died %d times within 10m", fragileDeaths) {
		t.Errorf("the operation with the default crash limit: %+v", rec)
	}
}

// endOne cancels an operation that does not end by itself.
func (s *soak) endOne(t *testing.T, tree *statefs.Tree, d *daemon, id statefs.ID) {
	t.Helper()
	rec, err := tree.ReadRecord(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return // it has ended since, or its submit was cut off
	case err != nil:
		t.Fatal(err)
	case rec.Job != "sleep" && rec.Job != "endless" && rec.Job != "fragile" && rec.Job != "survivor":
		return
	}
	_, err = d.Request(t.Context(), id, statefs.Cancel, 0)
	if refused, ok := errors.AsType[*client.Error](err); err != nil && (!ok || refused.Status != 404 && refused.Status != 409) {
		t.Errorf("cancel %s: %v", id, err)
	}
	s.mu.Lock()
	s.op(id).cancelled = true
	s.mu.Unlock()
}

// checkEnds checks that each acknowledged operation ended as expected. That it is in the feed once is known.
func (s *soak) checkEnds(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, op := range s.ops {
		if op.acknowledged && op.end != statefs.Completed && (op.end != statefs.Cancelled || !op.cancelled) {
			t.Errorf("%s (%s), cancelled %t, ended as %q", id, op.job, op.cancelled, op.end)
		}
	}
}

// soakSample is what the daemon, its keepers and its storage take, in bytes, at the end of one daemon's life.
type soakSample struct{ daemon, keepers, disk int64 }

func (s soakSample) String() string {
	return fmt.Sprintf("daemon %.1f MiB, keepers %.1f MiB, disk %.1f MiB", mib(s.daemon), mib(s.keepers), mib(s.disk))
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

func (s *soak) sample(t *testing.T, d *daemon) (sample soakSample) {
	t.Helper()
	for _, p := range s.r.processes() {
		switch {
		case p.pid == d.cmd.Process.Pid:
			sample.daemon = resident(p.pid)
		case strings.HasPrefix(p.command, binary(t)):
			sample.keepers += resident(p.pid)
		}
	}
	if sample.daemon == 0 {
		t.Error("the memory of the daemon cannot be read")
	}
	return sample
}

// resident is the memory of a process in bytes, 0 if it has ended.
func resident(pid int) int64 {
	status, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	var kilobytes int64
	_, _ = fmt.Sscan(after, &kilobytes)
	return kilobytes << 10
}

// diskUsage is how much the files of a folder take on the disk, in bytes.
func diskUsage(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a command that runs has ended
		}
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += stat.Blocks * 512
			}
		}
		return nil
	}))
	return bytes
}

// compareQuarters reports the mean of the first and of the last quarter; with judge, growth is an error. The first
// sample is left out: the storage was empty.
func compareQuarters(t *testing.T, samples []soakSample, judge bool) {
	t.Helper()
	samples = samples[1:]
	quarter := max(len(samples)/4, 1)
	for _, kind := range []struct {
		name  string
		of    func(soakSample) int64
		slack int64
	}{
		{"memory of the daemon", func(s soakSample) int64 { return s.daemon }, soakMemorySlack},
		{"memory of the keepers", func(s soakSample) int64 { return s.keepers }, soakMemorySlack},
		{"disk", func(s soakSample) int64 { return s.disk }, soakDiskSlack},
	} {
		mean := func(samples []soakSample) int64 {
			var all int64
			for _, s := range samples {
				all += kind.of(s)
			}
			return all / int64(len(samples))
		}
		first, last := mean(samples[:quarter]), mean(samples[len(samples)-quarter:])
		t.Logf("%s: %.1f MiB in the first quarter, %.1f MiB in the last", kind.name, mib(first), mib(last))
		if judge && float64(last) > soakGrowth*float64(first)+float64(kind.slack) {
			t.Errorf("%s grew from %.1f to %.1f MiB", kind.name, mib(first), mib(last))
		}
	}
}
