package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs"
)

// keeperArg makes the test binary a keeper process.
const keeperArg = "keeper"

// wardenArg makes it the warden of one.
const wardenArg = "warden"

// playKeeper is a keeper process for the storage directory dir. It outlives the test only as long
// as its commands, which the test ends.
func playKeeper(dir string) error {
	return keeper.Main(context.Background(), keeper.Options{
		Dir: dir, Build: "build of the test",
		Durability: statefs.Process, Warden: []string{wardenArg},
	})
}

// openKeepers finds the keepers of a storage directory.
func openKeepers(ctx context.Context, dir string, logger *slog.Logger) (*keeper.Pool, error) {
	return keeper.Open(ctx, keeperOptions(dir, logger))
}

func keeperOptions(dir string, logger *slog.Logger) keeper.PoolOptions {
	return keeper.PoolOptions{
		Dir: dir, Executable: "/proc/self/exe", Program: []string{"keeper of a test", keeperArg, dir},
		Build: "build of the test", Logger: logger,
	}
}

// kept is a bench whose commands run under keepers.
type kept struct {
	*bench

	pool           *keeper.Pool
	silenceTimeout time.Duration // of the pools that are opened; 0 is the default
}

func prepareKept(t *testing.T, jobs string) *kept {
	t.Helper()
	k := &kept{bench: prepare(t, jobs, testHandlers)}
	t.Cleanup(func() {
		if k.daemon != nil {
			must(t, k.stop())
		}
		if k.pool != nil {
			must(t, k.pool.Close())
		}
		for _, pid := range k.keepers() {
			_ = unix.Kill(pid, unix.SIGTERM) // its commands end with it
		}
		k.poll("the keepers end", func() bool { return len(k.keepers()) == 0 })
	})
	return k
}

// keepers returns the running keeper processes of the storage.
func (k *kept) keepers() []int {
	k.t.Helper()
	locks, err := filepath.Glob(filepath.Join(k.dir, "keeper-*.lock"))
	must(k.t, err)
	var pids []int
	for _, lock := range locks {
		text, err := os.ReadFile(lock)
		if err != nil {
			continue // it has just ended
		}
		first, _, _ := strings.Cut(string(text), "\n")
		if pid, err := strconv.Atoi(first); err == nil && lives(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// lives reports whether a process exists and is no zombie.
func lives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}

// start starts a daemon that finds the keepers of the storage.
func (k *kept) start() {
	k.t.Helper()
	k.startWith(slog.New(slog.NewTextHandler(testWriter{k.t}, nil)))
}

// startWith is start with a logger for messages about keepers.
func (k *kept) startWith(logger *slog.Logger) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	options := keeperOptions(k.dir, logger)
	options.SilenceTimeout = k.silenceTimeout
	pool, err := keeper.Open(ctx, options)
	must(k.t, err)
	k.pool = pool
	k.config.Keepers = pool
	k.bench.start()
}

// leave ends the daemon and leaves its commands running.
func (k *kept) leave() {
	k.t.Helper()
	k.abandon(ErrDetach)
	must(k.t, <-k.ended)
	k.daemon = nil
	must(k.t, k.pool.Close())
}

// child starts a daemon in a process of its own, which can be killed.
func (k *kept) child() *exec.Cmd {
	k.t.Helper()
	cmd, _ := startChild(k.t, k.dir, keptVariable+"=yes")
	return cmd
}

func (k *kept) kill(child *exec.Cmd) {
	k.t.Helper()
	must(k.t, child.Process.Kill())
	_ = child.Wait() // it was killed
}

// awaitNothingTaken returns when every taken request has taken effect and its file is removed: the
// next daemon would repeat the others.
func (k *kept) awaitNothingTaken() {
	k.t.Helper()
	k.poll("no request is in hand", func() bool {
		taken, err := os.ReadDir(filepath.Join(k.dir, "taken"))
		return err == nil && len(taken) == 0
	})
}

// fifo creates a fifo that blocks a command until it is opened.
func (k *kept) fifo(name string) string {
	k.t.Helper()
	path := filepath.Join(k.t.TempDir(), name)
	must(k.t, unix.Mkfifo(path, 0o600))
	return path
}

// open unblocks the commands that wait at a fifo.
func (k *kept) open(fifo string) {
	k.t.Helper()
	f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	must(k.t, err)
	must(k.t, f.Close())
}

// begun submits a command and returns when it has written its first line, which is "begins".
func (k *kept) begun(job, text string) statefs.ID {
	k.t.Helper()
	id := k.submit(job, script(text))
	k.awaitLog(id, "begins\n")
	return id
}

// awaitReport returns when the keeper has written the exit report of an operation's command.
func (k *kept) awaitReport(dir string, id statefs.ID) {
	k.t.Helper()
	k.poll("the exit report", func() bool {
		_, err := keeper.ReadReport(dir, statefs.ExitName(id, ""))
		return err == nil
	})
}
