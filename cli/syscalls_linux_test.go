package cli_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jobdir/jobdir/client"
)

// maxCommandCalls is how many system calls the daemon and the keeper make for one command, from the submit to the
// record of its end: what commandCalls counts, with a tenth of head-room.
const maxCommandCalls = 265

// TestCommandCostsFewSystemCalls has strace(1) report what the daemon and the keeper do for commands that follow one
// another.
func TestCommandCostsFewSystemCalls(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skipf("system calls are not counted: apt-get install strace: %v", err)
	}
	calls := filepath.Join(t.TempDir(), "calls")
	if out, err := exec.CommandContext(t.Context(), strace, "-f", "-o", calls, "true").CombinedOutput(); err != nil {
		t.Skipf("strace cannot trace here; it needs ptrace(2), in a container --cap-add=SYS_PTRACE: %v, %s", err, out)
	}
	jobs, storage := t.TempDir(), filepath.Join(t.TempDir(), "storage")
	job := "group: g\nname: nothing\nparams:\n  n: {type: integer, required: true}\nrun: [" + executedProgram + "]\n"
	if err := os.WriteFile(filepath.Join(jobs, "job.yaml"), []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-y", "-s", "0", "-o", calls,
		"jobdir", "serve", "--storage", storage, "--jobs", jobs, "--listen", "127.0.0.1:0", "--durability", "process")
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	said := newScreen()
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said.waitFor(t, "jobdir: serving", 1)
	daemon := childrenOf(t, cmd.Process.Pid)[0]
	c, err := client.New("unix:"+filepath.Join(storage, "jobdir.sock"), client.WithReconnectTimeout(0))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const first, count = 5, 20 // those before the first one start the keeper, and fill what is kept
	for n := range first + count + 1 {
		op, err := c.Submit(t.Context(), "g", "nothing", map[string]any{"n": n})
		if err != nil {
			t.Fatal(err)
		}
		until(t, "the command has ended", func() bool { // not asked of the daemon, which would cost calls
			names, err := filepath.Glob(filepath.Join(storage, "jobs", op.ID.String()+".*"))
			return err == nil && len(names) == 0
		})
	}
	if err := syscall.Kill(daemon, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	until(t, "the daemon has ended", func() bool { return len(childrenOf(t, daemon)) == 0 })
	_ = cmd.Process.Signal(syscall.SIGTERM) // it would wait for the keeper
	_ = cmd.Wait()
	all, searched := commandCalls(t, calls, first, count)
	t.Logf("%d system calls a command", all/count)
	if all/count > maxCommandCalls {
		t.Errorf("%d system calls a command, at most %d are allowed", all/count, maxCommandCalls)
	}
	// A lack of memory may make the kernel forget the inode by which the keeper knows the process.
	if searched > count/4 {
		t.Errorf("after %d of %d commands the keeper has read the stat of process 1, which is older than all of them", searched, count)
	}
}

// executedProgram is the smallest program.
const executedProgram = "/bin/true"

// ignoredCalls are made by the Go runtime, as many as the machine is busy.
var ignoredCalls = regexp.MustCompile(`^(futex|nanosleep|epoll_pwait|sched_yield|getpid|tgkill|rt_sigreturn|mmap|` +
	`munmap|madvise|sched_getaffinity|restart_syscall|clock_\w+)\(|<(anon_inode:\[eventfd\]|/sys/fs/cgroup/[^>]*)>`)

// otherProcess is in the calls that read what other processes of the machine there are.
var otherProcess = regexp.MustCompile(`"/proc/\d+/|</proc(/\d+/\w+)?>`)

// commandCalls counts the system calls in a trace from the start of a command on until that of the command count
// later. What a command does after its execve(2) does not count. searched is how often the keeper has read the stat
// of process 1.
func commandCalls(t *testing.T, trace string, first, count int) (calls, searched int) {
	t.Helper()
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	started, executed := 0, map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		pid, call, _ := strings.Cut(lines.Text(), " ")
		call = strings.TrimLeft(call, " ")
		switch {
		case strings.HasPrefix(call, "execve(\""+executedProgram):
			if started++; started == first+count {
				return calls, searched
			}
			executed[pid] = true
		case strings.HasPrefix(call, "+++"):
			delete(executed, pid)
			continue
		}
		if started >= first && strings.Contains(call, `"/proc/1/stat"`) {
			searched++
		}
		if started < first || executed[pid] || strings.HasPrefix(call, "---") || strings.HasPrefix(call, "<... ") ||
			ignoredCalls.MatchString(call) || otherProcess.MatchString(call) {
			continue
		}
		calls++
	}
	t.Fatalf("the trace has %d commands", started)
	return 0, 0
}
