package watch

import (
	"os"

	"golang.org/x/sys/unix"
)

// replacedOrMounted returns why path is another folder than the one that root holds. It uses mount
// IDs and the mount root attribute of statx(2), Linux 5.8 and later. On an older kernel it returns
// GoneReplaced.
func replacedOrMounted(path string, root *os.Root) string {
	var now, held unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &now) != nil {
		return GoneReplaced
	}
	folder, err := root.Open(".")
	if err != nil {
		return GoneReplaced
	}
	defer folder.Close()
	if unix.Statx(int(folder.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &held) != nil {
		return GoneReplaced
	}
	if now.Mask&held.Mask&unix.STATX_MNT_ID == 0 || now.Mnt_id == held.Mnt_id {
		return GoneReplaced
	}
	switch {
	case now.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return GoneMountedOver
	case held.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return GoneUnmounted
	}
	return GoneReplaced
}
