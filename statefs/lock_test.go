package statefs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
)

func TestOneOwner(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree := openTree(t, dir, Options{Durability: Process})
	if pid, held := tree.Holder(); held {
		t.Errorf("a new storage is held by %d", pid)
	}
	first, err := Own(tree)
	check(t, err)
	if pid, held := tree.Holder(); !held || pid != os.Getpid() {
		t.Errorf("the holder is %d, %t", pid, held)
	}
	for _, other := range []*Tree{tree, openTree(t, dir, Options{Durability: Process})} {
		_, err = Own(other)
		locked, ok := errors.AsType[*LockedError](err)
		if !ok || locked.PID != os.Getpid() || locked.Dir != tree.Dir() ||
			!strings.Contains(err.Error(), fmt.Sprintf("PID %d", os.Getpid())) {
			t.Errorf("a second owner in one process: %v", err)
		}
	}
	if got, want := start(t, "own", dir).line(t), fmt.Sprintf("locked %d", os.Getpid()); got != want {
		t.Errorf("a second owner in another process says %q, want %q", got, want)
	}
	check(t, first.Release())
	if pid, held := tree.Holder(); held {
		t.Errorf("after the release %d holds it", pid)
	}
	second, err := Own(tree)
	check(t, err)
	check(t, second.Release())
}

func TestTheLockEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	for range 3 {
		daemon := start(t, "own", tree.Dir())
		if got := daemon.line(t); got != "ready" {
			t.Fatalf("the daemon says %q", got)
		}
		_, err := Own(tree)
		if locked, ok := errors.AsType[*LockedError](err); !ok || locked.PID != daemon.cmd.Process.Pid {
			t.Errorf("beside the daemon %d: %v", daemon.cmd.Process.Pid, err)
		}
		if pid, held := tree.Holder(); !held || pid != daemon.cmd.Process.Pid {
			t.Errorf("the holder is %d, %t", pid, held)
		}
		daemon.kill(t)
		if pid, held := tree.Holder(); held {
			t.Errorf("after kill -9 %d holds it", pid)
		}
		o, err := Own(tree)
		check(t, err)
		check(t, o.Release())
	}
}

// TestHolderTakesNoLock: asking for the holder must not keep a daemon from starting.
func TestHolderTakesNoLock(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				tree.Holder()
			}
		}
	}()
	for range 300 {
		o, err := Own(tree)
		if err != nil {
			t.Error(err)
			continue
		}
		check(t, o.Release())
	}
	close(stop)
	await(t, stopped, "end of the asking")
}

func TestLockedErrorWithoutAPID(t *testing.T) {
	t.Parallel()
	if text := (&LockedError{Dir: "/s"}).Error(); strings.Contains(text, "PID") ||
		!strings.Contains(text, "another daemon") {
		t.Error(text)
	}
	if (&LockedError{
		Dir: "/s",
		PID: 7,
	}).Error() != "storage /s is in use by the daemon with PID 7: stop that one, or choose another directory with --storage" {
		t.Error("the message has changed")
	}
}

// TestRemovedLockFileLetsNobodyIn: after the lock file is removed or replaced, no second daemon
// starts, and the file is restored.
func TestRemovedLockFileLetsNobodyIn(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"removed":  os.Remove,
		"replaced": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, []byte("1\n"), 0o640)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tree := openTree(t, dir, Options{Durability: Process})
			o, err := Own(tree)
			check(t, err)
			defer func() { check(t, o.Release()) }()
			if made, err := o.RestoreLock(); made || err != nil {
				t.Errorf("a lock file that is well is made again: %t, %v", made, err)
			}
			check(t, spoil(filepath.Join(dir, lockFile)))
			got, want := start(t, "own", dir).line(t), fmt.Sprintf("locked %d", os.Getpid())
			if got != want {
				t.Errorf("a second daemon says %q, want %q", got, want)
			}
			if pid, held := tree.Holder(); !held || pid != os.Getpid() {
				t.Errorf("the holder is %d, %t", pid, held)
			}
			if made, err := o.RestoreLock(); !made || err != nil {
				t.Errorf("the lock file is not made again: %v", err)
			}
			if pid, held := readLock(filepath.Join(dir, lockFile)); !held || pid != os.Getpid() {
				t.Errorf("the lock file says %d, %t", pid, held)
			}
		})
	}
}

// TestLockOfDeadProcess kills a daemon while a copy of its descriptor still holds the lock, as a
// child does between fork and exec, and releases it after a delay.
func TestLockOfDeadProcess(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	dead := start(t, "wait")
	pid := dead.cmd.Process.Pid
	dead.kill(t)
	name := filepath.Join(tree.Dir(), lockFile)
	check(t, os.WriteFile(name, fmt.Appendln(nil, pid), 0o600))
	left, err := os.Open(name)
	check(t, err)
	check(t, files.Flock(left, unix.LOCK_EX|unix.LOCK_NB))
	let := time.AfterFunc(50*time.Millisecond, func() { _ = left.Close() })
	defer let.Stop()
	owner, err := Own(tree)
	check(t, err)
	check(t, owner.Release())
}

// Holder returns the PID of the daemon that holds the directory, 0 if unknown, and false if no
// daemon holds it.
func (t *Tree) Holder() (pid int, held bool) {
	if pid, held := readLock(filepath.Join(t.dir, lockFile)); held {
		return pid, true
	}
	folder, err := os.Open(t.JobsDir())
	if err != nil {
		return 0, false
	}
	defer func() { _ = folder.Close() }() // opened for reading
	if !isLocked(folder) {
		return 0, false
	}
	return machine.LockHolder(folder), true
}
