package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/delivery"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// daemonDir is the environment variable that turns the test binary into a daemon on this directory,
// so that a test has a daemon in a process of its own.
const daemonDir = "JOBDIR_TEST_DAEMON"

// keptVariable is the environment variable that makes that daemon run its commands through a
// keeper.
const keptVariable = "JOBDIR_TEST_KEEPER"

// childDaemon runs a daemon until SIGTERM, and then prints its counters.
func childDaemon(dir string) error {
	tree, err := statefs.Open(dir, commitOptions(statefs.Options{Durability: statefs.Process}))
	if err != nil {
		return err
	}
	owner, err := statefs.Own(tree)
	if err != nil {
		return err
	}
	jobs := catalog.New(catalog.Options{Extra: []catalog.Source{{
		Name: "test.yaml",
		YAML: []byte(handlerJobs + "---" + commandJobs + "---" + keptJobs + "---" + resultJobs + "---" + killJobs),
	}}})
	if err := jobs.Reload(); err != nil {
		return err
	}
	config := Config{
		// tests kill these daemons again and again
		CrashLimit: catalog.CrashLimit{Burst: catalog.MaxCrashBurst, Within: 1},
		Owner:      owner, Catalog: jobs, Handlers: testHandlers, Logger: slog.New(slog.DiscardHandler),
		Outbox: delivery.Settings{WebhookAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
	}
	if os.Getenv(keptVariable) != "" {
		config.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
		pool, err := openKeepers(context.Background(), dir, config.Logger)
		if err != nil {
			return err
		}
		defer pool.Close()
		config.Keepers = pool
	}
	config.Intake = submit.NewIntake(submit.Config{Tree: tree})
	if config.History, err = history.Open(owner, config.Logger); err != nil {
		return err
	}
	defer func() { _ = config.History.Close() }()
	d, err := New(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if after, err := strconv.ParseUint(os.Getenv(feedAfter), 10, 64); err == nil {
		go func() {
			if err := printFeed(ctx, d, after); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}()
	}
	if err := d.Run(ctx); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(d.Health().Counters)
}

// startChild starts a daemon in a process of its own. Its output may be read after it has ended.
func startChild(t *testing.T, dir string, environ ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	child := exec.CommandContext(t.Context(), "/proc/self/exe") // killed when the test ends early
	child.Env = append(os.Environ(), daemonDir+"="+dir)
	child.Env = append(child.Env, environ...)
	var out bytes.Buffer
	child.Stdout, child.Stderr = &out, os.Stderr
	must(t, child.Start())
	return child, &out
}

// TestKilledDaemon kills a daemon with running and paused commands. Their processes outlive it, and
// the next daemon ends them before it starts the operations again, so that none runs twice,
// whatever path each daemon used for the storage. It does not end a person's process that uses the
// storage.
func TestKilledDaemon(t *testing.T) {
	t.Parallel()
	b := prepare(t, handlerJobs+"---"+commandJobs, testHandlers)
	link := b.dir + "-by-another-name"
	must(t, os.Symlink(b.dir, link))
	child, _ := startChild(t, link)
	bystander := exec.CommandContext(t.Context(), "sleep", "1000")
	bystander.Env = append(os.Environ(), "JOBDIR_STORAGE="+b.dir, "JOBDIR_ID=test-script_2025-11-26_13-07-00_p5_r4")
	must(t, bystander.Start())
	defer func() { _, _ = bystander.Process.Kill(), bystander.Wait() }()
	running, paused := b.submit("script", script("echo $$; exec sleep 1000")),
		b.submit("script", script("echo $$; exec sleep 1000"))
	var pids []string
	for _, id := range []statefs.ID{running, paused} {
		b.await("the command runs", func() bool {
			log, err := os.ReadFile(b.tree.LogPath(id))
			return err == nil && strings.HasSuffix(string(log), "\n")
		})
		pids = append(pids, strings.TrimSpace(b.log(id)))
	}
	mark, err := statefs.MarkOf(b.dir)
	must(t, err)
	curious := exec.CommandContext(t.Context(), "sleep", "1000") // a process of a person, which has the mark of the work
	curious.Env = append(os.Environ(), mark)
	must(t, curious.Start())
	defer func() { _, _ = curious.Process.Kill(), curious.Wait() }()
	b.touch(paused, statefs.Pause)
	b.awaitState(paused, statefs.Paused)
	must(t, child.Process.Kill())
	_ = child.Wait() // it was killed
	for _, pid := range pids {
		if processState(t, pid) == "Z" {
			t.Fatalf("process %s ended with its daemon: nothing is tested", pid)
		}
	}
	b.start()
	b.awaitState(paused, statefs.Paused)
	b.await("the second run", func() bool {
		return strings.Count(b.log(running), "\n") == 3
	})
	lines := strings.Split(b.log(running), "\n")
	if lines[0] != pids[0] || lines[1] != "  Run 2 begins." || lines[2] == pids[0] {
		t.Errorf("log %q", lines)
	}
	for _, pid := range pids {
		environ, err := os.ReadFile("/proc/" + pid + "/environ")
		if err == nil && bytes.Contains(environ, []byte(b.dir)) {
			t.Errorf("process %s of the first run is alive", pid)
		}
	}
	if state := processState(t, strconv.Itoa(bystander.Process.Pid)); state == "Z" {
		t.Error("a process with JOBDIR_STORAGE in its environment was ended")
	}
	if state := processState(t, strconv.Itoa(curious.Process.Pid)); state == "Z" {
		t.Error("a process with the mark and no ID was ended")
	}
	b.touch(paused, statefs.Resume)
	b.awaitState(paused, statefs.Running)
	rec, err := b.tree.ReadRecord(paused)
	if err != nil || rec.Run != 2 {
		t.Errorf("run %d, %v", rec.Run, err)
	}
}
