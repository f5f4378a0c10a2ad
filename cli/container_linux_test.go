package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jobdir/jobdir/client"
)

// As the first process of a container the daemon is the parent of all orphans: none of them stays a zombie, neither
// what a command leaves behind nor what is left when its keeper is killed.
func TestFirstProcessOfAContainer(t *testing.T) {
	t.Parallel()
	inside := []string{"--pid", "--fork", "--mount-proc", "--kill-child"} // a /proc of the new namespace
	if os.Geteuid() != 0 {
		inside = append(inside, "--map-root-user")
	}
	if out, err := exec.CommandContext(t.Context(), "unshare", append(inside, "true")...).CombinedOutput(); err != nil {
		t.Skipf("a PID namespace cannot be made here: run as root, or apt-get install util-linux: %v %s", err, out)
	}
	jobs, storage := t.TempDir(), filepath.Join(t.TempDir(), "storage")
	job := "group: g\nname: orphans\nrestart: fail\nrun: [sh, -c, '(setsid sh -c \"sleep 0.1; exit 3\" &); (sleep 0.2 &); exec sleep 600']\n"
	if err := os.WriteFile(filepath.Join(jobs, "job.yaml"), []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	inside = append(inside, "jobdir", "serve", "--storage", storage, "--jobs", jobs, "--listen", "127.0.0.1:0")
	cmd := exec.CommandContext(t.Context(), "unshare", inside...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	said := newScreen()
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said.waitFor(t, "jobdir: serving", 1)
	first := childrenOf(t, cmd.Process.Pid)[0]
	c, err := client.New("unix:"+filepath.Join(storage, "jobdir.sock"), client.WithReconnectTimeout(0))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Submit(t.Context(), "g", "orphans", nil); err != nil {
		t.Fatal(err)
	}
	until(t, "the keeper runs its command", func() bool { return strings.Contains(tree(t, first), "sleep") })
	until(t, "the orphans are gone", func() bool { return strings.Count(tree(t, first), "sleep") == 1 })
	for _, pid := range childrenOf(t, first) { // the keeper is the only child
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "nothing is left", func() bool { return tree(t, first) == "" })
	if err := syscall.Kill(first, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := exitCodeOf(t, cmd.Wait()); code != 0 {
		t.Errorf("exit code %d: %s", code, said.text())
	}
}

// tree names everything below a process, zombies too.
func tree(t *testing.T, pid int) string {
	t.Helper()
	var out strings.Builder
	for _, child := range childrenOf(t, pid) {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child))
		if err == nil {
			out.WriteString(strings.TrimSpace(string(name)) + " ")
		}
		out.WriteString(tree(t, child))
	}
	return out.String()
}

func childrenOf(t *testing.T, pid int) (pids []int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for word := range bytes.FieldsSeq(text) {
			var child int
			if _, err := fmt.Sscan(string(word), &child); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}
