package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// callsOf has the most system calls and syncs of one operation: a handler without work, submitted by one of loadClients
// clients and finished, with durability power. One sync serves every operation that asked in time, so syncs become more
// when the machine is busy. The aim is 18 calls and 0.4 syncs: a change that saves some lowers these bounds.
var callsOf = []struct {
	commit       statefs.CommitMethod
	calls, syncs float64
}{
	{statefs.CommitFiles, 44, 6},
	{statefs.CommitJournal, 24, 1},
}

// countedOperations is enough for what is done once in some hundred operations to count.
const countedOperations = 2000

// schedulerCalls are those of the Go scheduler and its memory. They are printed and not counted: they depend on how
// busy the machine is, not on what an operation does.
var schedulerCalls = []string{
	"clock_nanosleep", "clone", "clone3", "epoll_pwait", "epoll_pwait2", "epoll_wait", "futex", "gettid",
	"madvise", "mmap", "mprotect", "munmap", "nanosleep", "restart_syscall", "rseq", "rt_sigaction", "rt_sigprocmask",
	"rt_sigreturn", "sched_getaffinity", "sched_yield", "set_robust_list", "sigaltstack", "tgkill", "timer_create",
	"timer_delete", "timer_settime",
}

// syncCalls wait for the disk. The only use of pwritev2 is RWF_DSYNC: a write of the journal, synced by the same call.
var syncCalls = []string{"fdatasync", "fsync", "msync", "pwritev2", "sync", "sync_file_range", "syncfs"}

// TestAnOperationCostsFewSystemCalls counts what the kernel is asked for during operations without work. A count holds
// on every machine, which a time does not.
func TestAnOperationCostsFewSystemCalls(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not installed; make setup installs it as root, or: apt-get install strace")
	}
	b := &bench{temp: t.TempDir()}
	// As it ships, without the race detector of the test.
	program := filepath.Join(b.temp, "bench")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	for _, most := range callsOf {
		t.Run(string(most.commit), func(t *testing.T) {
			calls, syncs := countOperations(t, b, program, most.commit)
			if calls > most.calls {
				t.Errorf("an operation costs %.1f system calls, want at most %.0f", calls, most.calls)
			}
			if syncs > most.syncs {
				t.Errorf("an operation costs %.2f syncs, want at most %.0f", syncs, most.syncs)
			}
			if calls < 5 || syncs == 0 {
				t.Errorf("%.1f calls and %.2f syncs were counted: strace has not seen the server", calls, syncs)
			}
		})
	}
}

// countOperations returns how many system calls, and how many of them syncs, an operation costs with a way to commit.
func countOperations(t *testing.T, b *bench, program string, commit statefs.CommitMethod) (calls, syncs float64) {
	t.Helper()
	s, err := b.startLoadOf(t.Context(), program, "", durablePower, commit)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	f := &feed{server: s}
	if _, err := f.load(t.Context(), loadClients, 2*loadClients); err != nil { // connections, and what is made once
		t.Fatal(err)
	}
	counted, err := countCalls(t.Context(), s.pid(), func() error {
		_, err := f.load(t.Context(), loadClients, countedOperations)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var scheduling float64
	names := slices.SortedFunc(maps.Keys(counted), func(a, b string) int { return counted[b] - counted[a] })
	for _, name := range names {
		each := float64(counted[name]) / countedOperations
		scheduler := slices.Contains(schedulerCalls, name)
		if scheduler {
			scheduling += each
		} else {
			calls += each
		}
		if slices.Contains(syncCalls, name) {
			syncs += each
		}
		if each >= 0.005 {
			t.Logf("%7.2f %s%s", each, name, map[bool]string{true: " (scheduler)"}[scheduler])
		}
	}
	t.Logf("%.1f calls, %.2f of them syncs, an operation, and %.1f of the scheduler", calls, syncs, scheduling)
	return calls, syncs
}

// countCalls counts the system calls of a process, all its threads included, during do.
func countCalls(ctx context.Context, pid int, do func() error) (counted map[string]int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*patience)
	defer cancel()
	strace := exec.CommandContext(ctx, "strace", "-f", "-c", "-p", strconv.Itoa(pid))
	said, err := strace.StderrPipe()
	if err == nil {
		err = strace.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start strace: %w", err)
	}
	lines := bufio.NewScanner(said)
	// It has attached to all threads when it says so.
	if !lines.Scan() || !strings.Contains(lines.Text(), "attached") {
		_ = strace.Process.Kill() // it may have ended
		return nil, fmt.Errorf("strace does not attach: %w: %s", strace.Wait(), lines.Text())
	}
	// It says so of each new thread too, and stops the server while that is not read.
	type summary struct {
		text []string
		err  error
	}
	read := make(chan summary, 1)
	go func() {
		var s summary
		for lines.Scan() {
			s.text = append(s.text, lines.Text())
		}
		s.err = lines.Err()
		read <- s
	}()
	err = do()
	_ = strace.Process.Signal(syscall.SIGINT) // it detaches, and prints the summary
	late := time.AfterFunc(patience, cancel)
	defer late.Stop()
	got := <-read
	_ = strace.Wait() // ended by the signal
	if err := errors.Join(err, got.err); err != nil {
		return nil, err
	}
	counted = make(map[string]int)
	for _, line := range got.text {
		// % time, seconds, microseconds a call, calls, errors unless there are none, name
		words := strings.Fields(line)
		if len(words) != 5 && len(words) != 6 || words[len(words)-1] == "total" {
			continue
		}
		if n, err := strconv.Atoi(words[3]); err == nil {
			counted[words[len(words)-1]] = n
		}
	}
	return counted, nil
}
