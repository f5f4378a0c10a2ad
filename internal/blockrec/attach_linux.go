package blockrec

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/internal/faultfs"
)

// ErrCannotAttach is wrapped when this machine or user cannot have a disk as a block device with a file system; the
// message says what is missing.
var ErrCannotAttach = errors.New("cannot attach a disk of this process as a block device")

const loopControl = "/dev/loop-control"

// CanAttach returns nil where Attach works, and otherwise an error that wraps ErrCannotAttach and says what to do.
func CanAttach() error {
	if err := faultfs.CanMount(); err != nil {
		return fmt.Errorf("%w: %w", ErrCannotAttach, err)
	}
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: %w (modprobe loop; a container needs --privileged and the devices of the machine)",
			ErrCannotAttach, err)
	}
	return control.Close()
}

// Attached is a disk as a block device.
type Attached struct {
	folder string
	server *fuse.Server
	loop   int // descriptor; the kernel clears the device with the last one
	device string
}

// Attach makes a block device of a disk, by way of an empty folder. The caller closes it when nothing on it is
// mounted any more.
func Attach(folder string, disk *Disk) (*Attached, error) {
	if err := CanAttach(); err != nil {
		return nil, err
	}
	fs, err := mountFUSE(folder, &server{fuse.NewDefaultRawFileSystem(), disk})
	if err != nil {
		return nil, fmt.Errorf("mount a disk on %s: %w", folder, err)
	}
	go fs.Serve() // ends with the mount, which Close waits for
	a := &Attached{folder: folder, server: fs, loop: -1}
	if err := fs.WaitMount(); err != nil {
		return nil, errors.Join(fmt.Errorf("mount a disk on %s: %w", folder, err), a.Close())
	}
	if err := a.attachLoop(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// mountFUSE mounts a file system with a descriptor that no child process inherits. If this process ended
// first, a child with the descriptor would wait for its disk while it prevents the release of the disk, and
// could not be killed.
func mountFUSE(folder string, raw fuse.RawFileSystem) (*fuse.Server, error) {
	const longest = 1 << 20 // of a read or write
	device, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,max_read=%d", device, longest)
	if err := unix.Mount("blockrec", folder, "fuse.blockrec", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return nil, errors.Join(err, unix.Close(device))
	}
	fs, err := fuse.NewServer(raw, fmt.Sprintf("/dev/fd/%d", device), &fuse.MountOptions{
		DisableXAttrs: true, DisableReadDirPlus: true, MaxWrite: longest, Logger: log.New(io.Discard, "", 0),
	})
	if err != nil {
		return nil, errors.Join(err, unix.Unmount(folder, unix.MNT_FORCE|unix.MNT_DETACH))
	}
	return fs, nil
}

// attachLoop takes a free loop device. Others may do the same at the same time.
func (a *Attached) attachLoop() error {
	backing := filepath.Join(a.folder, fileName)
	// without the poller of Go: it would ask this process from inside
	file, err := unix.Open(backing, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", backing, err)
	}
	defer func() { _ = unix.Close(file) }() // the loop device holds it
	control, err := unix.Open(loopControl, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", loopControl, err)
	}
	defer func() { _ = unix.Close(control) }() // nothing was written
	config := &unix.LoopConfig{
		Fd: uint32(file), Size: 512,
		Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO},
	}
	copy(config.Info.File_name[:], "blockrec")
	for {
		number, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return fmt.Errorf("%w: no loop device is free: %w", ErrCannotAttach, err)
		}
		a.device = fmt.Sprintf("/dev/loop%d", number)
		a.loop, err = unix.Open(a.device, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%w: open %s: %w (a container needs the devices of the machine)", ErrCannotAttach, a.device, err)
		}
		err = unix.IoctlLoopConfigure(a.loop, config)
		if err == nil {
			return nil
		}
		err = errors.Join(err, a.closeLoop())
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("attach %s to %s: %w", backing, a.device, err)
		}
	}
}

func (a *Attached) closeLoop() error {
	if a.loop < 0 {
		return nil
	}
	err := unix.Close(a.loop)
	a.loop = -1
	return err
}

// Device is the path of the block device.
func (a *Attached) Device() string { return a.device }

// Close takes the device away.
func (a *Attached) Close() error {
	err := a.closeLoop()
	if err2 := unix.Unmount(a.folder, unix.MNT_FORCE|unix.MNT_DETACH); err2 != nil {
		return errors.Join(err, fmt.Errorf("unmount %s: %w", a.folder, err2))
	}
	a.server.Wait()
	return err
}
