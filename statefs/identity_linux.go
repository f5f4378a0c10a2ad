package statefs

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// identifyAt uses statx(2), which returns the creation time if the file system stores it.
func identifyAt(fd int, file string) (Identity, uint64, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, file, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_NLINK|unix.STATX_BTIME, &st)
	if errors.Is(err, unix.ENOSYS) {
		return identifyByStat(fd, file)
	}
	identity := Identity{Inode: st.Ino}
	if err == nil && st.Mask&unix.STATX_BTIME != 0 {
		identity.Born = time.Unix(st.Btime.Sec, int64(st.Btime.Nsec))
	}
	return identity, uint64(st.Nlink), err
}
