package watch

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFUSE(t *testing.T) {
	t.Parallel()
	bindfs, err := exec.LookPath("bindfs")
	if err != nil {
		t.Skip("needs bindfs: apt-get install -y bindfs")
	}
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("needs /dev/fuse (modprobe fuse; a container needs --device /dev/fuse): %v", err)
	}
	must(t, device.Close())
	if !inNamespace(t) {
		return
	}
	backing, front := t.TempDir(), t.TempDir()
	// bindfs returns once the mount exists; its process ends with the namespace.
	if output, err := exec.Command(bindfs, backing, front).CombinedOutput(); err != nil {
		t.Fatalf("bindfs: %v\n%s", err, output)
	}
	t.Cleanup(func() { _ = unix.Unmount(front, unix.MNT_DETACH) })

	d := openDir(t, front, Options{ScanInterval: quickScan})
	wantScan(t, d.Mode(), "fuse")
	start(t, d)
	write(t, filepath.Join(backing, "op-behind"), "")
	takeByListing(t, d, front, "op-behind")
	must(t, d.Check())
	// Changes through the mount cause events too, in addition to the scan.
	write(t, filepath.Join(front, "op-through"), "")
	takeKey(t, d, "op-through")

	f := openFiles(t, Options{ScanInterval: quickScan})
	start(t, f)
	wake, _ := subscribe(t, f, filepath.Join(front, "op-behind"))
	awaitWake(t, wake)
	if stats := statsOf(f); stats.Polled != 1 {
		t.Errorf("stats %+v", stats)
	}
}
