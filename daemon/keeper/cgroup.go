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

// A keeper moves itself into a control group of its own (cgroups(7), version 2) where the parent
// group is delegated. Everything that its commands start is born there and cannot leave, whatever
// it does to its session and its environment. When the keeper is killed, the whole group can be
// ended.

// groupPrefix begins the names of the groups that keepers make. The rest of the name is random, so
// a name recorded in a lock file never matches a group made by another program.
const groupPrefix = "jobdir-keeper-"

// enterGroup makes a group, moves this process into it and returns its folder.
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

// leaveGroup moves this process back to the parent group, ends the processes left in its own group,
// and removes it. Nothing else would ever find those processes.
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
	if err := writeControlFile(dir, "cgroup.procs", "0"); err != nil { // 0 is the process that writes
		return fmt.Errorf("enter a control group: %w", err)
	}
	return nil
}

// writeControlFile writes to an existing control file of a group. It never creates the file.
func writeControlFile(dir, file, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

var errNoGroups = errors.New("control groups of version 2 are not mounted")

// ownGroup returns the folder of this process's group.
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

// groupMount finds the mount of cgroup version 2 in the text of /proc/self/mountinfo
// (proc_pid_mountinfo(5)).
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

// delegated returns an error unless this process may divide the group. Under systemd the group must
// be marked as delegated (Delegate= in systemd.resource-control(5)); elsewhere write permission is
// enough.
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

// isGroup reports whether dir can be the group of a keeper. dir may come from a file that any user
// could have written.
func isGroup(dir string) bool {
	var kind unix.Statfs_t
	return strings.HasPrefix(filepath.Base(dir), groupPrefix) && filepath.IsAbs(dir) && filepath.Clean(dir) == dir &&
		unix.Statfs(dir, &kind) == nil && kind.Type == unix.CGROUP2_SUPER_MAGIC
}

// endGroup ends all processes in the group of a dead keeper (SIGTERM and SIGCONT, SIGKILL after the
// grace period) and removes the group.
func endGroup(dir string, grace time.Duration) error {
	if !isGroup(dir) {
		return nil // gone, or none
	}
	err := endMembers(dir, grace)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil // another process has removed it
	}
	if err != nil {
		return fmt.Errorf("end the control group of a dead keeper: %w", err)
	}
	return nil
}

func endMembers(dir string, grace time.Duration) error {
	if err := signalMembers(dir, unix.SIGTERM, unix.SIGCONT); err != nil {
		return err
	}
	// Wait even when no member is listed: a killed process leaves cgroup.procs before it has ended,
	// and until then the group cannot be removed.
	err := awaitEmpty(dir, grace)
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

// killGroup sends SIGKILL to the whole group at once (cgroup.kill, Linux 5.14), or to one member
// after another.
func killGroup(dir string) error {
	err := writeControlFile(dir, "cgroup.kill", "1")
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return signalMembers(dir, unix.SIGKILL)
}

// removeGroup removes a group and the groups that its processes may have made below it.
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

// signalMembers sends signals to one member of a group after another.
func signalMembers(dir string, signals ...unix.Signal) error {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for line := range strings.Lines(string(text)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || pid <= 0 {
			continue
		}
		if h, err := openPidfd(pid); err == nil {
			for _, sig := range signals {
				_ = h.signal(sig) // it may have ended
			}
			h.close()
		}
	}
	return err
}

// awaitEmpty waits until no living process is in a group or below it. It returns
// os.ErrDeadlineExceeded after longest. The kernel reports changes of cgroup.events as POLLPRI.
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
