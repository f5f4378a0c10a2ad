package statefs

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// identifyAt asks with statx(2), which says when a file was made, where the file system keeps that.
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
