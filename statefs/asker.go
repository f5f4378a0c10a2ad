package statefs

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// ownerName is the name of the user who owns a file, the number where the system knows no name, and "" when that cannot be told.
func ownerName(root *os.Root, file string) string {
	info, err := root.Lstat(file)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	uid := strconv.FormatUint(uint64(stat.Uid), 10)
	if known, err := user.LookupId(uid); err == nil {
		return known.Username
	}
	return uid
}
