package statefs

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
	"time"
)

// ownerName returns the name of the user who owns a file, the numeric UID if the user has no name,
// and "" if the owner is unknown.
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

// RequestSettleDelay returns how long the daemon should wait before it takes a request file without
// arguments, because its writer may be about to add them. quiet is how long the file must be
// unchanged; a file with a whole JSON object is settled at once.
func (t *Tree) RequestSettleDelay(id ID, ask Action, quiet time.Duration) time.Duration {
	file := RequestName(id, ask)
	info, err := t.jobs.Lstat(file)
	if err != nil {
		return 0
	}
	age := t.options.Now().Sub(info.ModTime())
	if age >= quiet || age < -time.Hour { // the clock was set back
		return 0
	}
	if stamp, err := t.Stamp(file); err != nil || len(stamp.Args) > 0 {
		return 0
	}
	return max(quiet-age, time.Millisecond)
}
