package cli_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jobdir/jobdir/statefs"
)

const backupJobs = `
group: g
name: quick
params: {n: {type: integer, default: 0}}
unique: {on_hit: off}
lane: wide
run: [sh, -c, 'echo begun; echo "$1"; echo ended', sh, "${params.n}"]
---
group: g
name: stay
unique: {on_hit: off}
lane: wide
run: [sleep, "600"]
`

// stop ends the daemon in order, and its commands.
func (s *orderServer) stop() {
	s.Helper()
	s.must(s.cmd.Process.Signal(syscall.SIGINT))
	s.must(s.cmd.Wait())
}

// commits are the ways to make changes durable, with segments so small that they are used again all the time.
var commits = map[string][]string{
	"files":   {"--commit", "files"},
	"journal": {"--commit", "journal", "--journal-segment", "128KiB"},
}

// submitting submits and pauses without a pause until it is stopped.
type submitting struct {
	s      *orderServer
	stop   chan struct{}
	group  sync.WaitGroup
	mu     sync.Mutex // guards ids
	ids    []string   // in the order of their answers
	paused []string
}

func (l *submitting) run(clients int) {
	for n := range clients {
		l.group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-l.stop:
					return
				default:
				}
				job, param := "quick", 1+i
				if i%20 == n {
					job, param = "stay", 0
				}
				id := l.s.submit(job, param)
				if job == "stay" && i%40 == n {
					l.s.call(http.MethodPost, "/api/v1/operations/"+id+"/pause?wait=2m", nil, nil)
					l.add(&l.paused, id)
				}
				l.add(&l.ids, id)
			}
		})
	}
}

func (l *submitting) add(to *[]string, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*to = append(*to, id)
}

// answered returns what was answered until now.
func (l *submitting) answered() (ids, paused []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.ids...), append([]string{}, l.paused...)
}

// A copy that was made under load has everything that was answered before, and a daemon on it carries that out.
func TestBackupOfADaemonUnderLoad(t *testing.T) {
	t.Parallel()
	for name, args := range commits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := serveOrderAt(t, filepath.Join(dir, "storage"), backupJobs, args...)
			waits := s.submit("stay", 0, orderEntry{"delay": "24h"})
			var done []string
			for n := range 30 {
				done = append(done, s.submit("quick", n+1))
			}
			for _, id := range done {
				until(t, id+" has ended", func() bool { return s.show(id).Status == statefs.Completed })
			}
			load := &submitting{s: s, stop: make(chan struct{})}
			load.run(3)
			until(t, "there is a load", func() bool { ids, paused := load.answered(); return len(ids) > 200 && len(paused) > 3 })
			copied := filepath.Join(dir, "copy")
			ids, paused := load.answered()
			out, err := exec.CommandContext(t.Context(), "jobdir", "backup", "--storage", s.storage, "--to", copied).CombinedOutput()
			after, _ := load.answered()
			close(load.stop)
			load.group.Wait()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%d operations before, %d during the copy; %s", len(ids), len(after)-len(ids), out)
			logs := make(map[string]string)
			for _, id := range done {
				logs[id] = s.read(s.storage, id, ".log")
			}
			s.stop()
			wantLeftOut(t, copied)

			d := serveOrderAt(t, copied, backupJobs, args...)
			if o := d.show(waits); o.Status != statefs.Scheduled {
				t.Errorf("what waited is %s", o.Status)
			}
			for _, id := range done {
				if o := d.show(id); o.Status != statefs.Completed || d.read(copied, id, ".log") != logs[id] {
					t.Errorf("%s, which had ended, is %s", id, o.Status)
				}
			}
			for _, id := range paused {
				if o := d.show(id); o.Status != statefs.Paused {
					t.Errorf("%s, which was paused, is %s", id, o.Status)
				}
			}
			for _, id := range ids {
				if strings.Contains(id, "stay") {
					if o := d.show(id); !slices.Contains([]statefs.State{statefs.Running, statefs.Paused, statefs.Queued}, o.Status) {
						t.Errorf("%s is %s", id, o.Status)
					}
					continue
				}
				until(t, id+" is carried out", func() bool { return d.show(id).Status == statefs.Completed })
				if log := d.read(copied, id, ".log"); !strings.Contains(log, "ended\n") {
					t.Errorf("%s has completed with the log %q", id, log)
				}
			}
			if left, err := filepath.Glob(filepath.Join(copied, "corrupt", "*")); err != nil || len(left) > 0 {
				t.Errorf("%v %v", left, err)
			}
		})
	}
}

// read reads a file of an operation.
func (s *orderServer) read(storage, id, suffix string) string {
	s.Helper()
	parsed, err := statefs.ParseID(id)
	s.must(err)
	data, err := os.ReadFile(filepath.Join(storage, "operations", parsed.Day(), id+suffix))
	s.must(err)
	return string(data)
}

// wantLeftOut checks that a copy has no files of processes.
func wantLeftOut(t *testing.T, copied string) {
	t.Helper()
	for _, pattern := range []string{"*.sock", "*.lock", "keeper-*", "history.db*", "tmp"} {
		if found, err := filepath.Glob(filepath.Join(copied, pattern)); err != nil || len(found) > 0 {
			t.Errorf("the copy has %v (%v)", found, err)
		}
	}
}

// A copy of a storage whose daemon was killed has what the journal has, and so does one of a storage at rest.
func TestBackupWithoutADaemon(t *testing.T) {
	t.Parallel()
	for name, args := range commits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := serveOrderAt(t, filepath.Join(dir, "storage"), backupJobs, args...)
			var ids []string
			for range 20 {
				ids = append(ids, s.submit("stay", 0))
			}
			s.call(http.MethodPost, "/api/v1/operations/"+ids[0]+"/pause?wait=2m", nil, nil)
			s.kill()
			check := func(copied string) {
				t.Helper()
				if out, err := exec.CommandContext(t.Context(), "jobdir", "backup", "--storage", s.storage, "--to", copied).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				d := serveOrderAt(t, copied, backupJobs, args...)
				for i, id := range ids {
					want := map[bool]string{true: "paused", false: "running queued"}[i == 0]
					if o := d.show(id); !strings.Contains(want, string(o.Status)) {
						t.Errorf("%s is %s, want %s", id, o.Status, want)
					}
				}
				d.stop()
			}
			check(filepath.Join(dir, "killed"))
			s.start()
			s.stop()
			check(filepath.Join(dir, "rest"))
			for what, to := range map[string]string{"not empty": filepath.Join(dir, "killed"), "inside": filepath.Join(s.storage, "copy")} {
				out, err := exec.CommandContext(t.Context(), "jobdir", "backup", "--storage", s.storage, "--to", to).CombinedOutput()
				if err == nil || !strings.Contains(string(out), "choose another") {
					t.Errorf("%s: %v\n%s", what, err, out)
				}
			}
		})
	}
}
