package statefs

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
	"time"
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

// Unsettled is how long a request that says nothing of what it means is still to be left alone: somebody may be about to write that. quiet is how
// long a file must not have changed; one that holds a whole JSON object is settled at once.
func (t *Tree) Unsettled(id ID, ask Ask, quiet time.Duration) time.Duration {
	file := RequestName(id, ask)
	info, err := t.jobs.Lstat(file)
	if err != nil {
		return 0
	}
	age := t.options.Now().Sub(info.ModTime())
	if age >= quiet || age < -time.Hour { // a clock that was set
		return 0
	}
	if stamp, err := t.Stamp(file); err != nil || len(stamp.Args) > 0 {
		return 0
	}
	return max(quiet-age, time.Millisecond)
}
