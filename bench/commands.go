package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jobdir/jobdir/daemon/keeper"
)

// startConcurrency is how many commands are under way at a time, through the keeper and bare.
const startConcurrency = 4

// measureCommands starts and ends the smallest program many times, each with a log file of its own: through a keeper
// process, and in a bare loop of fork and exec.
func measureCommands(ctx context.Context, b *bench) (rows []Row, err error) {
	dir, err := b.folder("keeper")
	if err != nil {
		return nil, err
	}
	for _, sub := range []string{"tmp", "operations"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o750); err != nil {
			return nil, err
		}
	}
	pool, err := keeper.Open(ctx, keeper.PoolOptions{
		Dir: dir, Program: []string{b.binary, "keeper", "--storage", dir, "--durability", b.durability}, Build: "bench",
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, endKeepers(dir, pool)) }()
	through := func(n int, log *os.File) error {
		r, err := pool.Start(ctx, keeper.Command{
			Args: []string{"/bin/true"}, Env: os.Environ(), Output: log,
			Key:    keeper.Key{Operation: fmt.Sprintf("bench_%d", n), Run: 1},
			Report: fmt.Sprintf("operations/%d.exit", n),
		})
		if err != nil {
			return err
		}
		defer r.Acknowledge()
		if e := r.Exit(); e.Code != 0 {
			return fmt.Errorf("the program ended with %+v", e)
		}
		return nil
	}
	const name = "commands started and ended through the keeper"
	kept, bare, err := b.inTurns(dir, name, through)
	if err != nil {
		return nil, err
	}
	rows = []Row{row(name, "1/s", kept, &bare, leastOfFloor(0.6), b.counts.commands)}
	more, err := b.runningMemory(ctx)
	return append(rows, more...), err
}

// maxRunningMemory is the target for all running commands together, in MiB.
const maxRunningMemory = 64

// runningMemory measures what the processes of the program have in memory while many commands run.
func (b *bench) runningMemory(ctx context.Context) (rows []Row, err error) {
	s, err := b.startServer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	if _, err := s.running(ctx, "held"); err != nil { // so that there is a keeper
		return nil, err
	}
	before, err := s.processMemory()
	if err != nil {
		return nil, err
	}
	for range b.counts.paused - 1 {
		if _, err := s.running(ctx, "held"); err != nil {
			return nil, err
		}
	}
	after, err := s.processMemory()
	if err != nil {
		return nil, err
	}
	const mib = 1 << 20
	what := fmt.Sprintf("%d running commands, daemon, keeper and warden: ", b.counts.paused)
	return []Row{
		row(what+"resident", "MiB", float64(after.resident)/mib, nil, most(maxRunningMemory), 1),
		row(what+"private and written to", "MiB", float64(after.private)/mib, nil, nil, 1),
		row(what+"resident, grown by", "MiB", float64(after.minus(before).resident)/mib, nil, nil, 1),
	}, nil
}

// processMemory is what the daemon, its keepers and their wardens have in memory.
func (s *server) processMemory() (all memory, err error) {
	locks, err := filepath.Glob(filepath.Join(s.storage, "keeper-*.lock"))
	if err != nil {
		return all, err
	}
	if len(locks) == 0 {
		return all, errors.New("the server has no keeper")
	}
	pids := []int{s.pid()}
	for _, lock := range locks {
		text, err := os.ReadFile(lock)
		if err != nil {
			return all, err
		}
		var pid int
		if _, err := fmt.Sscan(string(text), &pid); err != nil {
			return all, fmt.Errorf("read %s: %w", lock, err)
		}
		wardens, err := childrenNamed(pid, "warden")
		if err != nil {
			return all, err
		}
		pids = append(append(pids, pid), wardens...)
	}
	for _, pid := range pids {
		resident, err := kibibytes(pid, "status", "VmRSS:")
		if err != nil {
			return all, err
		}
		private, err := kibibytes(pid, "smaps_rollup", "Private_Dirty:")
		if err != nil {
			return all, err
		}
		all.resident += resident
		all.private += private
	}
	return all, nil
}

// childrenNamed returns the children of a process whose command line has a word.
func childrenNamed(parent int, word string) (pids []int, err error) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			return nil, err
		}
		for field := range strings.FieldsSeq(string(text)) {
			args, err := os.ReadFile("/proc/" + field + "/cmdline")
			if errors.Is(err, os.ErrNotExist) || err == nil && !strings.Contains(string(args), word) {
				continue // it has ended, or is a command
			}
			pid, err2 := strconv.Atoi(field)
			if err := errors.Join(err, err2); err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}
	if err == nil && len(pids) == 0 {
		err = fmt.Errorf("process %d has no child %s", parent, word)
	}
	return pids, err
}

// inTurns measures commands through the keeper and bare, in turns so that both see the same machine, and returns the
// middle of each.
func (b *bench) inTurns(dir, name string, through func(n int, log *os.File) error) (kept, bare float64, err error) {
	if _, err := startMany(dir, name+" first", startConcurrency, through); err != nil {
		return 0, 0, err
	}
	var all [2][]float64
	for i := range b.counts.repeats {
		for j, start := range []func(n int, log *os.File) error{through, bareCommand} {
			rate, err := startMany(dir, fmt.Sprint(name, i, j), b.counts.commands, start)
			if err != nil {
				return 0, 0, err
			}
			all[j] = append(all[j], rate)
		}
	}
	slices.Sort(all[0])
	slices.Sort(all[1])
	return all[0][len(all[0])/2], all[1][len(all[1])/2], nil
}

// endKeepers ends the keeper of a folder that is about to be removed.
func endKeepers(dir string, pool *keeper.Pool) error {
	var errs []error
	for _, pid := range pool.PIDs() {
		errs = append(errs, syscall.Kill(pid, syscall.SIGTERM))
	}
	for {
		left, err := filepath.Glob(filepath.Join(dir, "keeper-*"))
		if err != nil || len(left) == 0 || errors.Join(errs...) != nil {
			return errors.Join(append(errs, err, pool.Close())...)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// bareCommand is the least that a command with a log costs.
func bareCommand(_ int, log *os.File) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	pid, err := syscall.ForkExec("/bin/true", []string{"/bin/true"}, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{null.Fd(), log.Fd(), log.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	_, err = syscall.Wait4(pid, nil, 0, nil)
	return err
}

// startMany starts count commands, some at once, and returns how many that are in a second.
func startMany(dir, name string, count int, start func(n int, log *os.File) error) (rate float64, err error) {
	folder := filepath.Join(dir, "operations", name)
	if err := os.Mkdir(folder, 0o750); err != nil {
		return 0, err
	}
	base := int(time.Now().UnixNano())
	turns := make(chan int)
	failed := make(chan error, startConcurrency)
	var group sync.WaitGroup
	for range startConcurrency {
		group.Go(func() {
			var first error
			for n := range turns {
				if first == nil {
					first = startWithLog(filepath.Join(folder, fmt.Sprint(n, ".log")), base+n, start)
				}
			}
			failed <- first
		})
	}
	began := time.Now()
	for n := range count {
		turns <- n
	}
	close(turns)
	group.Wait()
	took := time.Since(began)
	close(failed)
	for e := range failed {
		err = errors.Join(err, e)
	}
	return float64(count) / took.Seconds(), err
}

func startWithLog(path string, n int, start func(n int, log *os.File) error) error {
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	return errors.Join(start(n, log), log.Close())
}
