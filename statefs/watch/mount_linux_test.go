package watch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func mountMemory(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatalf("mount tmpfs on %s: %v", dir, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // otherwise the folder cannot be removed
}

func TestCheckMountedOver(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	dir := t.TempDir()
	d := openDir(t, dir, Options{})
	start(t, d)
	mountMemory(t, dir)
	if reason := goneReason(t, d); reason != GoneMountedOver {
		t.Errorf("reason %q", reason)
	}
	must(t, unix.Unmount(dir, unix.MNT_DETACH))
	must(t, d.Check())

	// A bind mount of another folder of the same file system: same device.
	other := t.TempDir()
	must(t, unix.Mount(other, dir, "", unix.MS_BIND, ""))
	if reason := goneReason(t, d); reason != GoneMountedOver {
		t.Errorf("bind mount: reason %q", reason)
	}
	must(t, unix.Unmount(dir, unix.MNT_DETACH))
	// A bind mount of the folder on itself is the same folder, and its changes are still seen.
	must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	must(t, d.Check())
	write(t, filepath.Join(dir, "op-a"), "")
	takeKey(t, d, "op-a")
	must(t, unix.Unmount(dir, unix.MNT_DETACH))
}

func TestCheckUnmounted(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	dir := t.TempDir()
	mountMemory(t, dir)
	d := openDir(t, dir, Options{})
	start(t, d)
	if err := unix.Unmount(dir, 0); !errors.Is(err, unix.EBUSY) {
		t.Errorf("plain unmount of a watched folder: %v, want EBUSY", err)
	}
	must(t, d.Check())
	must(t, unix.Unmount(dir, unix.MNT_DETACH))
	if reason := goneReason(t, d); reason != GoneUnmounted {
		t.Errorf("reason %q", reason)
	}
}

func TestReadOnlyFolderIsWatchedUnverified(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	dir, front := t.TempDir(), t.TempDir()
	mountMemory(t, dir)
	must(t, unix.Mount(dir, front, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(front, unix.MNT_DETACH) })
	must(t, unix.Mount("", front, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	d := openDir(t, front, Options{})
	mode := d.Mode()
	if mode.Name != ModeInotify || !strings.Contains(mode.Reason, "read-only") {
		t.Errorf("mode %+v", mode)
	}
	start(t, d)
	write(t, filepath.Join(dir, "op-a"), "")
	takeKey(t, d, "op-a")
}

func TestFolderWithoutWritePermission(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere; run as another user (the read-only mount test covers the same path)")
	}
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o500))
	t.Cleanup(func() { must(t, os.Chmod(dir, 0o700)) })
	d := openDir(t, dir, Options{})
	if mode := d.Mode(); mode.Name != ModeInotify || !strings.Contains(mode.Reason, "permission") {
		t.Errorf("mode %+v", mode)
	}
}
