package statefs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// fileSystemFull returns what the file system of a folder has run out of, "" if it has space. A few
// free blocks count as none: a record takes one. See statfs(2).
func fileSystemFull(dir string) (string, error) {
	var info unix.Statfs_t
	if err := unix.Statfs(dir, &info); err != nil {
		return "", fmt.Errorf("room on the disk of %s: %w", dir, err)
	}
	switch {
	case info.Flags&unix.ST_RDONLY != 0:
		return "the file system is mounted read-only", nil
	case info.Blocks > 0 && info.Bavail < 4:
		return "the disk is full", nil
	case info.Files > 0 && info.Ffree < 4:
		return "all inodes of the file system are used", nil
	}
	return "", nil
}
