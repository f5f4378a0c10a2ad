package statefs

import "testing"

// TestLockOfExitingProcess: a start waits for the lock of a daemon that was just killed and is
// still exiting.
func TestLockOfExitingProcess(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{Durability: Process})
	for range 3 {
		daemon := start(t, "large", tree.Dir())
		if got := daemon.line(t); got != "ready" {
			t.Fatalf("the daemon says %q", got)
		}
		check(t, daemon.cmd.Process.Kill())
		owner, err := Own(tree)
		check(t, err)
		check(t, owner.Release())
		daemon.kill(t)
	}
}
