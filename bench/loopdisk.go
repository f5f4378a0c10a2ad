package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// loopSize is the size of the image of a file system; the file is sparse.
const loopSize = 12 << 30

// onDisk returns a bench whose folders are on a file system of their own: an ext4 in a file, mounted through a loop
// device, when this user may do that and no folder was asked for. Else it is the bench itself. done unmounts and
// removes it.
func (b *bench) onDisk(ctx context.Context) (own *bench, done func() error, err error) {
	if b.dir != "" || os.Geteuid() != 0 {
		b.storage = fileSystem(b.temp)
		return b, func() error { return nil }, nil
	}
	point, err := b.folder("disk")
	if err != nil {
		return nil, nil, err
	}
	image := filepath.Join(b.temp, "disk.img")
	if err := makeImage(ctx, image); err != nil {
		return nil, nil, err
	}
	if out, err := exec.CommandContext(ctx, "mount", "-o", "loop", image, point).CombinedOutput(); err != nil {
		// A container without loop devices; the disk below is as good, it is only shared with others.
		b.storage = fmt.Sprintf("%s (no loop device: %s)", fileSystem(b.temp), strings.TrimSpace(string(out)))
		return b, func() error { return os.Remove(image) }, nil //nolint:nilerr // it is said
	}
	copied := *b
	copied.temp = point
	b.storage = fileSystem(point) + ", a loop device on " + fileSystem(b.temp)
	return &copied, func() error {
		if err := unix.Unmount(point, 0); err != nil {
			// Whatever still has a file open: the run must leave no mount behind.
			return errors.Join(fmt.Errorf("unmount %s: %w", point, err), unix.Unmount(point, unix.MNT_DETACH), os.Remove(image))
		}
		return os.Remove(image)
	}, nil
}

func makeImage(ctx context.Context, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make a disk: %w", err)
	}
	if err := errors.Join(f.Truncate(loopSize), f.Close()); err != nil {
		return fmt.Errorf("make a disk: %w", err)
	}
	// Built now and not in the background of what is measured.
	out, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0",
		path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make a disk: mkfs.ext4: %w\n%s", err, out)
	}
	return nil
}
