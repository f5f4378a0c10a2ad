//go:build linux

package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/notify"
)

func init() {
	roles["first"] = playFirst
}

// A newer daemon uses the commands of an older keeper, and gives it no new ones.
func TestOlderKeeper(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.options.Program = program(s.dir, time.Millisecond, 1)
	old := s.open(t)
	leave := newFIFO(t)
	j := s.job(t, 1, "-until", leave.path, "-exit", "5")
	first, err := old.Start(t.Context(), j.Command)
	if err != nil {
		t.Fatal(err)
	}
	old.Close()

	s.options.Build, s.options.Program = "newer build", program(s.dir, time.Millisecond, newestProtocol)
	p := s.open(t)
	r := run(t, p, j)
	if r.PID() != first.PID() {
		t.Fatalf("PID %d, want %d", r.PID(), first.PID())
	}
	if err := errors.Join(r.Stop(), r.Continue()); err != nil {
		t.Error(err)
	}
	exitOf(t, run(t, p, s.job(t, 2))) // in a keeper of its own
	if pids := p.PIDs(); len(pids) != 2 {
		t.Errorf("keepers %v, want two", pids)
	}
	leave.release(t)
	if e := exitOf(t, r); e.Code != 5 {
		t.Errorf("exit is %+v", e)
	}
	r.Acknowledge()
	eventually(t, "the older keeper ends with its last command", func() bool { return len(p.PIDs()) == 1 })
}

func TestNoProtocolInCommon(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.options.Program = program(s.dir, time.Millisecond, -1)
	p := s.open(t)
	if _, err := p.Start(t.Context(), s.job(t, 1).Command); !errors.Is(err, errProtocol) {
		t.Errorf("error %v", err)
	}
	for _, n := range []int{1} { // no daemon connects to it
		text, err := os.ReadFile(filepath.Join(s.dir, lockName(n)))
		if err != nil {
			t.Fatal(err)
		}
		var pid int
		if _, err := fmt.Sscan(string(text), &pid); err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(pid, unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
}

// Two daemons that need a keeper at the same time get one each, and neither treats the other's as
// dead.
func TestKeepersStartedAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var group sync.WaitGroup
	pools, found := make([]*Pool, 4), make([]Running, 4)
	for i := range pools {
		pools[i] = s.open(t)
	}
	jobs := make([]*job, len(pools))
	for i := range jobs {
		jobs[i] = s.job(t, i+1, "-hang")
	}
	for i := range pools {
		group.Go(func() { found[i], _ = pools[i].Start(context.Background(), jobs[i].Command) }) // seen below
	}
	group.Wait()
	numbersSeen := map[int]bool{}
	for i, r := range found {
		if r == nil {
			t.Fatalf("pool %d has started nothing", i)
		}
		for _, l := range pools[i].all() {
			numbersSeen[l.number] = true
		}
	}
	if len(numbersSeen) != len(pools) {
		t.Errorf("keepers %v, want %d", numbersSeen, len(pools))
	}
	later := s.open(t)
	if held := later.Commands(); len(held) != len(pools) {
		t.Errorf("a later pool finds %+v", held)
	}
	for _, j := range jobs {
		r := run(t, later, j)
		r.End("the test is over")
		exitOf(t, r)
	}
}

func TestLongPathOfStorage(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	s := newSiteAt(t, dir)
	p := s.open(t)
	if e := exitOf(t, run(t, p, s.job(t, 1, "-exit", "3"))); e.Code != 3 {
		t.Errorf("exit is %+v", e)
	}
	info, err := os.Lstat(filepath.Join(dir, socketName(1)))
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("mode of the socket %v, %v", info.Mode(), err)
	}
	if held := s.open(t).Commands(); len(held) != 1 {
		t.Errorf("another daemon finds %v", held)
	}
}

// A stopped keeper does not answer, but must not be treated as dead: its commands would be started
// twice.
func TestKeeperThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.open(t)
	j := s.job(t, 1, "-hang")
	run(t, p, j)
	keeper := p.PIDs()[0]
	p.Close()
	if err := unix.Kill(keeper, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the keeper stops", func() bool { return state(t, keeper) == 'T' })
	s.options.SilenceTimeout = time.Hour // not the reason why Open returns
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, s.options); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("error %v", err)
	}
	p = s.open(t)
	if notify.IsClosed(p.Settled()) || len(p.Commands()) > 0 || !slices.Equal(p.PIDs(), []int{keeper}) || len(p.Silent()) != 1 {
		t.Errorf("beside it: held %v, PIDs %v, silent %v", p.Commands(), p.PIDs(), p.Silent())
	}
	if e := exitOf(t, run(t, p, s.job(t, 2, "-exit", "3"))); e.Code != 3 {
		t.Errorf("beside it: exit %+v", e)
	}
	if err := unix.Kill(keeper, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Settled():
	case <-time.After(patience):
		t.Fatal("it is not heard when it goes on")
	}
	_, known := p.Find(j.Key, "")
	if again := run(t, p, j); !known || again.Stop() != nil {
		t.Error("its command is not found when it goes on")
	}
	if silent := p.Silent(); len(silent) > 0 {
		t.Errorf("it has answered, and silent are %v", silent)
	}
}

// Open waits no longer than SilenceTimeout for a keeper that runs and does not answer.
func TestKeeperThatRunsAndDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n, lock, err := takeNumber(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	listener, err := listenAt(t.Context(), filepath.Join(s.dir, socketName(n)))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s.options.SilenceTimeout = time.Millisecond
	p := s.open(t)
	silent := p.Silent()
	if notify.IsClosed(p.Settled()) || len(silent) != 1 || silent[0].PID != os.Getpid() {
		t.Errorf("beside it: silent %v", silent)
	}
	if err := errors.Join(lock.Close(), listener.Close()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Settled():
	case <-time.After(patience):
		t.Fatal("its end is not seen")
	}
}

// A connection that breaks while the keeper lives is made again, without an effect on its commands.
func TestConnectionBreaks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.options.Program = program(s.dir, time.Minute, newestProtocol)
	p := s.open(t)
	leave := newFIFO(t)
	r := run(t, p, s.job(t, 1, "-until", leave.path, "-exit", "4"))
	l := p.all()[0]
	for range 3 {
		l.mu.Lock()
		if l.channel != nil {
			l.channel.Close()
		}
		l.mu.Unlock()
		if err := errors.Join(r.Stop(), r.Continue()); err != nil {
			t.Error(err)
		}
	}
	leave.release(t)
	if e := exitOf(t, r); e.Code != 4 || e.Err != nil {
		t.Errorf("exit is %+v", e)
	}
	if err := unix.Kill(p.PIDs()[0], unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// Orphans become children of the keeper, and none stays a zombie.
func TestOrphansOfAKeeper(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.open(t)
	ready := newFIFO(t)
	run(t, p, s.job(t, 1, "-daemon", "-hang -tell "+ready.path, "-hang"))
	orphan := ready.pid(t)
	eventually(t, "the orphan is the keeper's child", func() bool {
		st, err := readStat(orphan)
		return err == nil && st.parent == p.PIDs()[0]
	})
	if err := unix.Kill(orphan, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the orphan is waited for", func() bool {
		_, err := readStat(orphan)
		return errors.Is(err, errGone)
	})
}

// playFirst is process 1 of a PID namespace, with orphans.
func playFirst([]string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go ReapOrphans(ctx)
	for range 20 {
		child := exec.CommandContext(ctx, os.Getenv("FAKEJOB"), "-daemon", "-exit 0")
		if err := child.Run(); err != nil {
			return fmt.Errorf("a child of its own: %w", err)
		}
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		pids, err := numbersIn("/proc")
		if err != nil {
			return err
		}
		if len(pids) == 1 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v are left", pids)
		}
	}
	fmt.Println("alone, PID", os.Getpid())
	return nil
}

func TestOrphansOfProcessOne(t *testing.T) {
	t.Parallel()
	first := exec.CommandContext(t.Context(), "/proc/self/exe", "first")
	first.Env = append(os.Environ(), "FAKEJOB="+fakejob)
	first.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	out, err := first.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Skip("a PID namespace may not be made here: run the test as root")
	}
	if err != nil || string(out) != "alone, PID 1\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// A process that got a leader's PID after the keeper died is spared.
func TestProcessWithReusedLeaderPIDIsSpared(t *testing.T) {
	t.Parallel()
	p := newSite(t).open(t)
	at, err := now()
	if err != nil {
		t.Fatal(err)
	}
	// The start times of processes have a resolution of ten milliseconds.
	eventually(t, "the next tick", func() bool {
		later, err := now()
		return err == nil && later > at
	})
	stranger := exec.CommandContext(t.Context(), "sleep", "1000")
	stranger.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	lost := []*remote{{command: command{
		PID: stranger.Process.Pid, Grace: time.Millisecond, Mark: []string{"JOBDIR_MARK=" + t.Name()},
	}}}
	if err := p.endRemains(lost, at); err != nil {
		t.Error(err)
	}
	if !isAlive(stranger.Process.Pid) {
		t.Fatal("the stranger was ended")
	}
	if at, err = now(); err != nil {
		t.Fatal(err)
	}
	if err := p.endRemains(lost, at); err != nil {
		t.Error(err)
	}
	if isAlive(stranger.Process.Pid) {
		t.Error("what had the number before was not ended: nothing is tested")
	}
	_ = stranger.Wait() // it was ended
}

func TestMemoryOfAThousandCommands(t *testing.T) {
	commands := 1000
	if raceDetector {
		commands = 50
	}
	s := newSite(t)
	p := s.open(t)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	all := make([]Running, commands)
	for i := range all {
		c := s.job(t, i+1).Command
		c.Args, c.Env = []string{"sleep", "1000"}, append(os.Environ(), c.Mark...)
		r, err := p.Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		c.Output.Close()
		all[i] = r
	}
	private := privateMemory(t, p.PIDs()[0])
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("%d commands: the keeper has %.1f MiB of its own, a client %.1f MiB more than without them", commands,
		float64(private)/(1<<20), float64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse)/(1<<20))
	if most := int64(32 << 20); private > most && !raceDetector {
		t.Errorf("the keeper has %d bytes of its own, and at most %d are promised", private, most)
	}
	for _, r := range all {
		r.End("the test is over")
	}
	for _, r := range all {
		exitOf(t, r)
	}
}

// privateMemory returns how much memory a process shares with no other.
func privateMemory(t *testing.T, pid int) (bytes int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var name string
		var size int64
		if _, err := fmt.Sscanf(line, "%s %d kB", &name, &size); err == nil && strings.HasPrefix(name, "Private_") {
			bytes += size << 10
		}
	}
	return bytes
}
