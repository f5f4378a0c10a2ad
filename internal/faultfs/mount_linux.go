package faultfs

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// ErrCannotMount is wrapped when this machine or user cannot mount a Disk; the message says what is missing.
var ErrCannotMount = errors.New("cannot mount a FUSE file system")

// Mounted is a disk at a path.
type Mounted struct {
	path   string
	server *fuse.Server
}

// CanMount returns nil where Mount works, and otherwise an error that wraps ErrCannotMount and says what to do.
func CanMount() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: run as root (the mount is made directly, without fusermount3)", ErrCannotMount)
	}
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: %w (modprobe fuse; a container needs --device /dev/fuse --cap-add SYS_ADMIN)",
			ErrCannotMount, err)
	}
	return device.Close()
}

// Mount mounts a disk on a folder. The caller closes it when no process uses it any more.
func Mount(path string, disk *Disk) (*Mounted, error) {
	if err := CanMount(); err != nil {
		return nil, err
	}
	raw := &server{fuse.NewDefaultRawFileSystem(), disk}
	// The kernel hands longer writes over in parts. Each request costs a buffer of this size.
	const longest = 1 << 14
	fs, err := fuse.NewServer(raw, path, &fuse.MountOptions{
		FsName: "faultfs", Name: "faultfs", DirectMountStrict: true, DisableXAttrs: true,
		MaxWrite: longest, DisableReadDirPlus: true, Logger: log.New(io.Discard, "", 0),

		Options: []string{"default_permissions"}, AllowOther: true,
	})
	if err != nil {
		return nil, fmt.Errorf("mount a disk on %s: %w", path, err)
	}
	if err := keepToOurselves(); err != nil {
		return nil, errors.Join(fmt.Errorf("mount a disk on %s: %w", path, err),
			unix.Unmount(path, unix.MNT_FORCE|unix.MNT_DETACH))
	}
	go fs.Serve() // ends with the mount, which Close waits for
	if err := fs.WaitMount(); err != nil {
		return nil, fmt.Errorf("mount a disk on %s: %w", path, err)
	}
	return &Mounted{path, fs}, nil
}

// keepToOurselves prevents child processes from inheriting the descriptors of the disks that this process
// serves, which the direct mount leaves open. If this process ended first, a child with such a descriptor
// would wait for its disk while it prevents the release of the disk, and could not be killed.
func keepToOurselves() error {
	entries, err := os.ReadDir("/proc/self/fd")
	for _, entry := range entries {
		fd, notNumber := strconv.Atoi(entry.Name())
		if target, gone := os.Readlink("/proc/self/fd/" + entry.Name()); notNumber == nil && gone == nil &&
			target == "/dev/fuse" {
			unix.CloseOnExec(fd)
		}
	}
	return err
}

// Close unmounts. A process that still has a file open there gets errors from then on.
func (m *Mounted) Close() error {
	if err := unix.Unmount(m.path, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", m.path, err)
	}
	m.server.Wait()
	return nil
}
