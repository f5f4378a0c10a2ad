package torture

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
)

// patience bounds every wait; no result depends on its length.
const patience = 2 * time.Minute

// jobs are the jobs of the tests. Each command writes a line to the file EFFECTS, outside of the storage,
// when it starts: a side effect that cannot be undone.
const jobs = `
group: t
name: quick
unique: {on_hit: off}
params: {n: {type: integer, default: 0}}
run: [sh, -c, 'echo "$JOBDIR_ID $JOBDIR_RUN $$" >>"$EFFECTS"; echo line']
---
group: t
name: sleep
unique: {on_hit: off}
params: {n: {type: integer, default: 0}}
run: [sh, -c, 'echo "$JOBDIR_ID $JOBDIR_RUN $$" >>"$EFFECTS"; echo line; exec sleep 1000']
---
group: t
name: survivor
unique: {on_hit: off}
run: [sh, -c, 'echo "$JOBDIR_ID $JOBDIR_RUN $$" >>"$EFFECTS"; i=0; while :; do i=$((i + 1)); echo "tick $i"; sleep 0.05; done']
---
group: t
name: items
unique: {on_hit: off}
params: {n: {type: integer, default: 0}}
items: {range: [1, 3]}
run: [sh, -c, 'echo "$JOBDIR_ID $JOBDIR_RUN/${item} $$" >>"$EFFECTS"; echo ${item}']
`

// rig is a storage directory with the daemons that use it one after another.
type rig struct {
	t       *testing.T
	dir     string // the storage
	jobs    string // folder of definitions
	effects string // the effects of the commands
	// an environment variable of every process that the rig starts; the daemon does not pass on names with
	// JOBDIR_
	mark   string
	random *rand.Rand
	cuts   bool   // its disk loses unsynced data
	umask  string // of the daemon, "" for that of the test
	// tests kill work more often than the default crash limit allows, so the daemon has a higher limit without this
	defaultCrashLimit bool
}

// newRig prepares a storage at dir, which the first daemon creates.
func newRig(t *testing.T, dir string) *rig {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("JOBDIR_TORTURE_SEED"); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		must(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("JOBDIR_TORTURE_SEED=%d", seed)
		}
	})
	aside := t.TempDir()
	r := &rig{
		t: t, dir: dir, jobs: filepath.Join(aside, "jobs"), effects: filepath.Join(aside, "effects"),
		mark: fmt.Sprintf("TORTURE_MARK=%d-%d", os.Getpid(), rand.Uint64()), random: rand.New(rand.NewPCG(seed, 1)),
	}
	must(t, os.Mkdir(r.jobs, 0o750))
	must(t, os.WriteFile(filepath.Join(r.jobs, "jobs.yaml"), []byte(jobs), 0o600))
	must(t, os.WriteFile(r.effects, nil, 0o600))
	t.Cleanup(func() {
		for _, p := range r.processes() {
			p.kill()
		}
	})
	return r
}

// daemon is one running daemon.
type daemon struct {
	*client.Client
	cmd    *exec.Cmd
	ended  chan struct{} // closed after the process was reaped
	err    error         // of Wait, once ended is closed
	stderr *output
}

// output is the output of a process, which may be read while the process runs.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

var servingLine = regexp.MustCompile(`^jobdir: serving (http://\S+),`)

// errEnded means that a daemon ended instead of serving.
var errEnded = errors.New("the daemon ended before it served")

// start starts a daemon and returns when it serves.
func (r *rig) start(args ...string) *daemon {
	r.t.Helper()
	d, err := r.tryStart(args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

// tryStart is start for a daemon that may end early. The error then wraps errEnded, and the daemon is
// returned too.
func (r *rig) tryStart(args ...string) (*daemon, error) {
	r.t.Helper()
	d := r.launch(args...)
	return d, r.await(d)
}

// await starts a daemon and returns when it serves.
func (r *rig) await(d *daemon) error {
	address := make(chan string, 1)
	err := d.launch(address)
	if err != nil {
		return err
	}
	select {
	case at := <-address:
		d.Client, err = client.New(at, client.WithReconnectTimeout(0))
		return err
	case <-d.ended:
		return fmt.Errorf("%w: %w\n%s", errEnded, d.err, d.stderr)
	case <-time.After(patience):
		d.kill()
		return fmt.Errorf("the daemon does not serve: %s", d.stderr)
	}
}

func (r *rig) launch(args ...string) *daemon {
	r.t.Helper()
	d := &daemon{stderr: new(output), ended: make(chan struct{})}
	all := []string{"serve", "--storage", r.dir, "--jobs", r.jobs, "--listen", "127.0.0.1:0", "--grace", "2s"}
	if !r.defaultCrashLimit {
		all = append(all, "--crash-limit-burst", "100", "--crash-limit-within", "1ms")
	}
	d.cmd = exec.Command(binary(r.t), append(all, args...)...)
	if r.umask != "" {
		d.cmd = exec.Command("sh", append([]string{"-c", `umask "$0"; exec "$@"`, r.umask}, d.cmd.Args...)...)
	}
	d.cmd.Env = append(os.Environ(), r.mark, "EFFECTS="+r.effects)
	d.cmd.Dir = "/"
	return d
}

// launch starts the process, and reads its output until it ends.
func (d *daemon) launch(address chan<- string) error {
	reader, writer, err := os.Pipe() // not StderrPipe: commands that outlive the daemon may hold it
	if err != nil {
		return err
	}
	d.cmd.Stderr = writer
	if err := d.cmd.Start(); err != nil {
		return errors.Join(err, reader.Close(), writer.Close())
	}
	_ = writer.Close() // the child has it
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer func() { _ = reader.Close() }()
		lines := bufio.NewReader(io.TeeReader(reader, d.stderr))
		for {
			line, err := lines.ReadString('\n')
			if m := servingLine.FindStringSubmatch(line); m != nil {
				address <- m[1]
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		d.err = d.cmd.Wait()
		select { // read the last lines, unless another process holds the pipe open
		case <-read:
		case <-time.After(time.Second):
		}
		close(d.ended)
	}()
	return nil
}

// kill ends the daemon as kill -9 does.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill() // it may have ended
	<-d.ended
	if d.Client != nil {
		d.Close()
	}
}

// stop shuts the daemon down properly.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	must(t, d.cmd.Process.Signal(os.Interrupt))
	select {
	case <-d.ended:
	case <-time.After(patience):
		d.kill()
		t.Fatalf("the daemon does not end: %s", d.stderr)
	}
	d.Close()
	if d.err != nil {
		t.Fatalf("the daemon ended with %v: %s", d.err, d.stderr)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until polls until a condition holds; the deadline only ends a test that has failed.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// within waits until a channel is closed.
func within(t *testing.T, what string, happens <-chan struct{}) {
	t.Helper()
	select {
	case <-happens:
	case <-time.After(patience):
		t.Fatalf("waited in vain: %s", what)
	}
}

// pause waits for a random time up to longest, or until the daemon ends.
func (r *rig) pause(d *daemon, longest time.Duration) {
	select {
	case <-time.After(time.Duration(r.random.Int64N(int64(longest)))):
	case <-d.ended:
	}
}
