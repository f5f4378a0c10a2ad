package blockrec

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FileSystem is a file system of the kernel and the program that makes it.
type FileSystem struct {
	Name string
	Size int64    // of its disk
	make []string // command; the device comes last
	pack string   // package that has the command
}

// FileSystems returns the file systems on which a storage is likely to be. The disks are nearly as small as
// their programs allow.
func FileSystems() []FileSystem {
	return []FileSystem{
		{"ext4", 64 << 20, []string{"mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"}, "e2fsprogs"},
		{"xfs", 320 << 20, []string{"mkfs.xfs", "-q", "-f"}, "xfsprogs"},
		{"btrfs", 128 << 20, []string{"mkfs.btrfs", "-q", "-f"}, "btrfs-progs"},
	}
}

// Format returns a disk with an empty file system. The folder is for the time of the call.
func (f FileSystem) Format(folder string) (*Image, error) {
	program, err := lookPath(f.make[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w (install %s; make setup does so as root)", ErrCannotAttach, err, f.pack)
	}
	disk := NewDisk(Blank(f.Size))
	a, err := Attach(folder, disk)
	if err != nil {
		return nil, err
	}
	out, err := exec.Command(program, append(f.make[1:], a.Device())...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", program, a.Device(), err, out)
	}
	if err := errors.Join(err, a.Close()); err != nil {
		return nil, err
	}
	return disk.Image(), nil
}

// lookPath also looks where programs of the administrator are, which not every PATH names.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	for _, folder := range []string{"/usr/sbin", "/sbin"} {
		if err == nil {
			break
		}
		if other, err2 := exec.LookPath(filepath.Join(folder, name)); err2 == nil {
			return other, nil
		}
	}
	return path, err
}

// Mount mounts the file system of a device on a folder.
func (f FileSystem) Mount(a *Attached, folder string) error {
	err := unix.Mount(a.Device(), folder, f.Name, 0, "")
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%w: the kernel has no %s (modprobe %s)", ErrCannotAttach, f.Name, f.Name)
	}
	if err != nil {
		return fmt.Errorf("mount %s on %s as %s: %w", a.Device(), folder, f.Name, err)
	}
	return nil
}

// Unmount unmounts it. It wraps EBUSY as long as a process uses the folder.
func (f FileSystem) Unmount(a *Attached, folder string) error {
	if err := unix.Unmount(folder, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", folder, err)
	}
	if f.Name == "btrfs" {
		forget(a.Device())
	}
	return nil
}

// forget makes btrfs forget a device. It remembers each by the name of its file system and refuses an older state of
// the same on another device.
func forget(device string) {
	const btrfsForgetDevice = 0x50009405 // BTRFS_IOC_FORGET_DEV
	control, err := unix.Open("/dev/btrfs-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return // the next mount says what is wrong
	}
	defer func() { _ = unix.Close(control) }() // nothing was written
	var args struct {
		_    int64
		name [4088]byte
	}
	copy(args.name[:], device)
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(control), btrfsForgetDevice, uintptr(unsafe.Pointer(&args))) //nolint:gosec // the call takes a structure that the library does not know
}
