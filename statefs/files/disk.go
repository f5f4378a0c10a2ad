package files

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// DiskFull reports whether err means that the disk, or the quota of the user, is full.
func DiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Identity distinguishes a file from every other file of its folder. A rename or another link
// keeps it.
type Identity struct {
	// Inode is the inode number. After a removal, a file system may reuse it for a new file.
	Inode uint64
	// Born is the creation time, which no system call can change; the zero time if the system or
	// the file system does not provide it.
	Born time.Time
}

// Same reports whether two identities are of the same file. The zero Identity is of no file.
func (i Identity) Same(other Identity) bool {
	return i.Inode != 0 && i.Inode == other.Inode && (i.Born.IsZero() || other.Born.IsZero() || i.Born.Equal(other.Born))
}

// identifyByStat returns the identity that stat(2) provides on every Unix.
func identifyByStat(fd int, file string) (Identity, uint64, error) {
	var st unix.Stat_t
	err := unix.Fstatat(fd, file, &st, unix.AT_SYMLINK_NOFOLLOW)
	return Identity{Inode: st.Ino}, uint64(st.Nlink), err
}
