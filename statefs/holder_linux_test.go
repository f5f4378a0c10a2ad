package statefs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHolderOfAFolderWithTheSameNumber: a lock on a folder of another file system with the same
// inode number does not count.
func TestHolderOfAFolderWithTheSameNumber(t *testing.T) {
	t.Parallel()
	proc, err := os.Open("/proc")
	check(t, err)
	sys, err := os.Open("/sys")
	check(t, err)
	defer func() {
		check(t, proc.Close())
		check(t, sys.Close())
	}()
	check(t, flock(sys, unix.LOCK_EX))
	if pid := folderHolder(sys); pid != os.Getpid() {
		t.Errorf("the holder of /sys is %d, want %d", pid, os.Getpid())
	}
	if pid := folderHolder(proc); pid != 0 {
		t.Errorf("the holder of /proc is %d", pid)
	}
	info, err := sys.Stat()
	check(t, err)
	if !hasLocked(os.Getpid(), info) {
		t.Error("the lock is not found by the open file")
	}
	if info, err = proc.Stat(); err != nil || hasLocked(os.Getpid(), info) {
		t.Errorf("an open file is taken for a locked one, %v", err)
	}
}
