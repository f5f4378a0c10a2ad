package keeper

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A keeper puts itself into a control group of its own (cgroups(7), version 2) where that is delegated. Everything that its commands
// start is born there and cannot leave, whatever it does to its session and its environment, so when the keeper is killed the whole
// group can be ended.

// groupPrefix begins the names of the groups that keepers make. What it is followed by is drawn at random, so that a name that was
// written down is never that of somebody else's group.
const groupPrefix = "jobdir-keeper-"

// enterGroup makes a group and moves this process there. It returns its folder, and an error when there is none.
func enterGroup() (dir string, err error) {
	parent, err := ownGroup()
	if err != nil {
		return "", err
	}
	if err := delegated(parent); err != nil {
		return "", err
	}
	dir = filepath.Join(parent, groupPrefix+rand.Text())
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a control group: %w", err)
	}
	if err := moveTo(dir); err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return dir, nil
}

// leaveGroup moves this process back, ends what is left in its group, which nobody would see otherwise, and removes it.
func leaveGroup(dir string) error {
	if dir == "" {
		return nil
	}
	if err := moveTo(filepath.Dir(dir)); err != nil {
		return err
	}
	return endGroup(dir, DefaultGrace)
}

func moveTo(dir string) error {
	if err := control(dir, "cgroup.procs", "0"); err != nil { // 0 is the process that writes
		return fmt.Errorf("enter a control group: %w", err)
	}
	return nil
}

// control writes to a control file of a group, which is there or not, and never made.
func control(dir, file, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

var errNoGroups = errors.New("control groups of version 2 are not mounted")

// ownGroup is the folder of the group of this process.
func ownGroup() (string, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	own := ""
	for line := range strings.Lines(string(groups)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			own = path
		}
	}
	root, at, ok := groupMount(mounts)
	if own == "" || !ok {
		return "", errNoGroups
	}
	below, err := filepath.Rel(root, own)
	if err != nil || strings.HasPrefix(below, "..") {
		return "", errNoGroups // it is outside of what is mounted here
	}
	return filepath.Join(at, below), nil
}

// groupMount finds where version 2 is mounted in the text of /proc/self/mountinfo (proc_pid_mountinfo(5)).
func groupMount(mountinfo []byte) (root, at string, ok bool) {
	for lines := bufio.NewScanner(bytes.NewReader(mountinfo)); lines.Scan(); {
		place, kind, found := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(place)
		if found && strings.HasPrefix(kind, "cgroup2 ") && len(fields) >= 5 && !strings.Contains(fields[4], `\`) {
			return fields[3], fields[4], true
		}
	}
	return "", "", false
}

// delegated returns an error when a group is somebody else's to divide. systemd marks what it delegates (Delegate= in
// systemd.resource-control(5)); without it, being able to is enough.
func delegated(dir string) error {
	if _, err := os.Stat("/run/systemd/system"); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 8)
		if n, err := unix.Getxattr(dir, name, value); err == nil && string(value[:n]) == "1" {
			return nil
		}
	}
	return errors.New("the control group is not delegated (Delegate=yes in the unit)")
}

// isGroup reports whether dir can be the group of a keeper: the text may come from a file that anybody could have put there.
func isGroup(dir string) bool {
	var kind unix.Statfs_t
	return strings.HasPrefix(filepath.Base(dir), groupPrefix) && filepath.IsAbs(dir) && filepath.Clean(dir) == dir &&
		unix.Statfs(dir, &kind) == nil && kind.Type == unix.CGROUP2_SUPER_MAGIC
}

// endGroup ends everything in the group of a dead keeper: SIGTERM and SIGCONT, SIGKILL after the grace period. Then it removes it.
func endGroup(dir string, grace time.Duration) error {
	if !isGroup(dir) {
		return nil // gone, or none
	}
	err := endMembers(dir, grace)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil // somebody else has removed it
	}
	if err != nil {
		return fmt.Errorf("end the control group of a dead keeper: %w", err)
	}
	return nil
}

func endMembers(dir string, grace time.Duration) error {
	pids, err := members(dir)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if h, err := hold(pid); err == nil {
			_ = errors.Join(h.signal(unix.SIGTERM), h.signal(unix.SIGCONT)) // it may have ended
			h.close()
		}
	}
	// Also when none is listed: a process that was killed is in no list any more while it still ends, and in the group's way.
	err = awaitEmpty(dir, grace)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if err = killGroup(dir); err == nil {
			err = awaitEmpty(dir, grace)
		}
	}
	if err != nil {
		return err
	}
	return removeGroup(dir)
}

// killGroup sends SIGKILL to everything in a group at one moment (cgroup.kill, Linux 5.14), or to one after another.
func killGroup(dir string) error {
	err := control(dir, "cgroup.kill", "1")
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	pids, err := members(dir)
	for _, pid := range pids {
		if h, err := hold(pid); err == nil {
			_ = h.signal(unix.SIGKILL) // it may have ended
			h.close()
		}
	}
	return err
}

// removeGroup removes a group and what its processes may have made below it.
func removeGroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, removeGroup(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(append(errs, os.Remove(dir))...)
}

func members(dir string) (pids []int, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for line := range strings.Lines(string(text)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// awaitEmpty waits until no living process is in a group or below it; os.ErrDeadlineExceeded when that takes too long. The kernel says
// each change of cgroup.events to whoever polls it.
func awaitEmpty(dir string, longest time.Duration) error {
	events, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if err != nil {
		return err
	}
	defer events.Close()
	text := make([]byte, 256)
	for deadline := time.Now().Add(longest); ; {
		n, err := events.ReadAt(text, 0)
		if n == 0 {
			return err
		}
		if bytes.Contains(text[:n], []byte("populated 0")) {
			return nil
		}
		left := time.Until(deadline)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		fds := []unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}
		if _, err := unix.Poll(fds, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
