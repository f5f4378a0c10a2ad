package cli_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/internal/faultfs"
	"github.com/jobdir/jobdir/statefs"
)

// A disk that does not take a sync ends the daemon at that submit, with what to do, and nothing that was acknowledged
// is lost: when the disk is well again the next daemon goes on.
func TestFailingDiskEndsTheDaemon(t *testing.T) {
	t.Parallel()
	if err := faultfs.CanMount(); err != nil {
		t.Skip(err)
	}
	mount, disk := t.TempDir(), faultfs.NewDisk(faultfs.Empty())
	mounted, err := faultfs.Mount(mount, disk)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mounted.Close(); err != nil {
			t.Error(err)
		}
	})
	jobs := t.TempDir()
	if err := os.WriteFile(filepath.Join(jobs, "job.yaml"),
		[]byte("group: g\nname: wait\nunique: {on_hit: off}\nrun: [sh, -c, 'echo $$; exec sleep 600']\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	storage := filepath.Join(mount, "storage")
	start := func() (*exec.Cmd, *screen) {
		cmd := exec.CommandContext(t.Context(), "jobdir", "serve", "--storage", storage, "--jobs", jobs, "--listen",
			"127.0.0.1:0", "--grace", "1s")
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		said := newScreen()
		cmd.Stderr = said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said.waitFor(t, "jobdir: serving", 1)
		return cmd, said
	}
	c, err := client.New("unix:"+filepath.Join(storage, "jobdir.sock"), client.WithReconnectTimeout(0))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	first, said := start()
	op, err := c.Submit(t.Context(), "g", "wait", nil)
	if err != nil {
		t.Fatal(err)
	}
	pid := commandOf(t, c, op.ID)
	disk.Arm(&faultfs.Fault{Kind: faultfs.Sync, At: 1, Err: syscall.EIO, Stays: true})
	_, err = c.Submit(t.Context(), "g", "wait", nil)
	if refused, ok := errors.AsType[*client.Error](err); !ok || refused.Status != http.StatusInternalServerError ||
		!strings.Contains(refused.Message, "disk of the daemon fails") {
		t.Errorf("a submit to a failing disk: %v", err)
	}
	if code := exitCodeOf(t, first.Wait()); code == 0 {
		t.Error("the daemon ended as if all were well")
	}
	if !strings.Contains(said.text(), "input/output error") {
		t.Errorf("the daemon said %q", said.text())
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the running command ended with the daemon: %v", err)
	}
	disk.Arm(nil)
	second, _ := start()
	found, err := c.Operation(t.Context(), op.ID)
	if err != nil || !found.State.Live() {
		t.Errorf("the operation that was acknowledged: %+v, %v", found, err)
	}
	if again := commandOf(t, c, op.ID); again != pid {
		t.Errorf("the command is process %d, and was %d", again, pid)
	}
	if err := second.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := exitCodeOf(t, second.Wait()); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// commandOf returns the process of a command that printed its PID in the last line of its log.
func commandOf(t *testing.T, c *client.Client, id statefs.ID) int {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		log, err := c.Log(t.Context(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(log)
		if err := errors.Join(err, log.Close()); err != nil {
			t.Fatal(err)
		}
		lines := strings.Fields(string(text))
		if len(lines) == 0 {
			continue
		}
		pid, err := strconv.Atoi(lines[len(lines)-1])
		if err != nil {
			t.Fatalf("log %q", text)
		}
		return pid
	}
	t.Fatal("the command says nothing")
	return 0
}
