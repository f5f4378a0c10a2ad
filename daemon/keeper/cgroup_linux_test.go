package keeper

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/notify"
)

// needGroups skips a test where no control group can be made.
func needGroups(t *testing.T) {
	t.Helper()
	parent, err := ownGroup()
	if err == nil {
		err = delegated(parent)
	}
	probe := filepath.Join(parent, "jobdir-test-"+strconv.Itoa(os.Getpid()))
	if err == nil {
		err = os.Mkdir(probe, 0o755)
	}
	if err != nil {
		t.Skipf("no control group of version 2 can be made here: %v; run as root, or in a unit with Delegate=yes", err)
	}
	if err := os.Remove(probe); err != nil {
		t.Fatal(err)
	}
}

// A process that has left its session and cleared its environment can be found only through its
// control group.
func TestNothingEscapesAKilledKeeper(t *testing.T) {
	t.Parallel()
	needGroups(t)
	for _, seen := range []string{"by its daemon", "by the next daemon"} {
		for onTerm, script := range map[string]string{
			"heeds SIGTERM":   "sleep 1000",
			"ignores SIGTERM": "trap '' TERM; sleep 1000; sleep 1000",
		} {
			t.Run(seen+", "+onTerm, func(t *testing.T) {
				t.Parallel()
				if onTerm == "ignores SIGTERM" && testing.Short() {
					t.Skip("it takes a whole grace period; run without -short")
				}
				s := newSite(t)
				p := s.open(t)
				j := s.job(t, 1)
				fugitive := filepath.Join(j.Dir, "fugitive")
				j.Args = []string{"sh", "-c", "setsid env -i sh -c 'echo $$ >" + fugitive + ".new; mv " + fugitive + ".new " +
					fugitive + "; " + strings.ReplaceAll(script, "'", `'"'"'`) + "' & exec sleep 1000"}
				r := run(t, p, j)
				eventually(t, "the fugitive is there", func() bool { _, err := os.Stat(fugitive); return err == nil })
				text, err := os.ReadFile(fugitive)
				if err != nil {
					t.Fatal(err)
				}
				pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
				if err != nil {
					t.Fatal(err)
				}
				lock, err := os.Open(filepath.Join(s.dir, lockName(1)))
				if err != nil {
					t.Fatal(err)
				}
				defer lock.Close()
				group := groupOf(lock)
				if !isGroup(group) {
					t.Fatalf("the group of the keeper is %q", group)
				}
				keeper := p.PIDs()[0]
				if seen == "by the next daemon" {
					p.Close()
					killPID(t, wardenOf(t, keeper)) // the warden would notice first
				}
				if err := unix.Kill(keeper, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				if seen == "by the next daemon" {
					eventually(t, "the keeper is gone", func() bool { return !isAlive(keeper) })
					s.open(t)
				} else {
					exitOf(t, r)
				}
				eventually(t, "the fugitive is gone", func() bool { return !isAlive(pid) })
				eventually(t, "the group is gone", func() bool { _, err := os.Stat(group); return errors.Is(err, os.ErrNotExist) })
			})
		}
	}
}

// A keeper that shuts down normally removes its group.
func TestGroupGoesWithItsKeeper(t *testing.T) {
	t.Parallel()
	needGroups(t)
	s := newSite(t)
	p := s.open(t)
	exitOf(t, run(t, p, s.job(t, 1)))
	lock, err := os.Open(filepath.Join(s.dir, lockName(1)))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	group := groupOf(lock)
	p.Retire()
	p.Close()
	eventually(t, "the group is gone", func() bool {
		_, err := os.Stat(group)
		return group != "" &&
			errors.Is(err, os.ErrNotExist)
	})
}

// The lock file in a copy of the storage names the group of a living keeper, which the copy must
// not end.
func TestCopyLeavesTheGroupAlone(t *testing.T) {
	t.Parallel()
	needGroups(t)
	s := newSite(t)
	p := s.open(t)
	r := run(t, p, s.job(t, 1, "-hang"))
	copied := newSite(t)
	text, err := os.ReadFile(filepath.Join(s.dir, lockName(1)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(copied.dir, lockName(1)), text, 0o640); err != nil {
		t.Fatal(err)
	}
	if held := copied.open(t).Commands(); len(held) > 0 {
		t.Errorf("the copy holds %v", held)
	}
	if notify.IsClosed(r.Done()) || !isAlive(r.PID()) || !isAlive(p.PIDs()[0]) {
		t.Error("the copy has ended the command of the first storage")
	}
}

// A group named in a lock file is ended only if it can be the group of a keeper.
func TestOtherGroupsAreLeftAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), groupPrefix+"x")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		t.Fatal(err)
	}
	own, err := ownGroup()
	for _, path := range []string{dir, own, "/sys/fs/cgroup", "", groupPrefix, "/proc", dir + "/.."} {
		if path == own && err != nil {
			continue
		}
		if err := endGroup(path, time.Nanosecond); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error("a folder that is no control group was removed")
	}
}

func TestGroupMount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, root, at string }{
		"unified": {"25 30 0:23 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n", "/", "/sys/fs/cgroup"},
		"hybrid":  {"24 30 0:22 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n26 30 0:24 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw\n", "/", "/sys/fs/cgroup/unified"},
		"inside":  {"25 30 0:23 /box /sys/fs/cgroup rw - cgroup2 none rw\n", "/box", "/sys/fs/cgroup"},
		"none":    {"24 30 0:22 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", "", ""},
		"torn":    {"24 30 - cgroup2\n - cgroup2 x", "", ""},
	} {
		if root, at, _ := groupMount([]byte(c.text)); root != c.root || at != c.at {
			t.Errorf("%s: %q %q", name, root, at)
		}
	}
}

func init() { roles["threads"] = playThreads }

// playThreads is a process of many threads that waits to be killed. It prints a line when all
// threads run.
func playThreads([]string) error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], 0); err != nil {
		return err
	}
	var begun sync.WaitGroup
	for range 400 {
		begun.Add(1)
		go func() {
			runtime.LockOSThread()
			begun.Done()
			_, _ = unix.Read(pipe[0], make([]byte, 1)) // nothing is ever written
		}()
	}
	begun.Wait()
	fmt.Println("they are there")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// A killed process of many threads, such as a keeper, leaves cgroup.procs while its last threads
// are still ending; until then its group cannot be removed.
func TestGroupOfWhatIsDying(t *testing.T) {
	t.Parallel()
	needGroups(t)
	parent, err := ownGroup()
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		dir := filepath.Join(parent, fmt.Sprintf("%stest-%d-%d", groupPrefix, os.Getpid(), n))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		group, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "threads")
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
		stdin, err1 := cmd.StdinPipe()
		stdout, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if err := killGroup(dir); err != nil {
			t.Fatal(err)
		}
		eventually(t, "no process is listed", func() bool {
			listed, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			return err == nil && len(listed) == 0
		})
		if err := endGroup(dir, DefaultGrace); err != nil {
			t.Error(err)
		}
		_ = errors.Join(stdin.Close(), group.Close(), cmd.Wait()) // it was killed
	}
}
