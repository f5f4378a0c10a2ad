package cli_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filteredProgram runs a program under a filter of system calls: filteredProgram NUMBERS PROGRAM ARGS...
const filteredProgram = "run-filtered"

// The demo goes to its end under the restrictions of the systemd unit, as far as they can be had without systemd: the
// user without privileges and without a way to them, the file system read-only but for temporary folders, no homes,
// and the filter of system calls.
func TestDemoUnderTheRestrictionsOfTheUnit(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounts and users are set up as root")
	}
	unit, err := os.ReadFile("../contrib/jobdir.service")
	if err != nil {
		t.Fatal(err)
	}
	top, err := os.MkdirTemp("/var/tmp", "jobdir-unit-") //nolint:usetesting // another user must get there, which is not so below t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	for _, name := range []string{"tools", "jobs-example"} {
		if err := os.CopyFS(filepath.Join(top, name), os.DirFS("../"+name)); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", top+"/jobdir", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	filtered, err := exec.LookPath(filteredProgram)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile(filtered)
	if err != nil {
		t.Fatal(err)
	}
	filtered = filepath.Join(top, filteredProgram) // where the other user may read it
	if err := os.WriteFile(filtered, self, 0o700); err != nil {
		t.Fatal(err)
	}
	const user = 65534
	err = filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, user, user)
	})
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := allowedCalls(unit)
	if err != nil {
		t.Skipf("the filter of system calls cannot be made here: %v", err)
	}
	script := `set -e
for dir in /tmp /var/tmp; do mount --bind $dir $dir; done
mount --bind / / && mount -o remount,bind,ro /
for dir in /home /root; do mount -t tmpfs -o ro,mode=0 none $dir; done
cd "$TOP"
exec setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"`
	if out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c",
		"mount --bind / /").CombinedOutput(); err != nil {
		t.Skipf("this machine allows no mounts: %v %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", script, "sh", filtered, numbers, "sh", "-c",
		`! touch /etc/jobdir-writes 2>/dev/null && ! chroot / true 2>/dev/null && exec sh tools/demo "$PWD/jobdir"`)
	cmd.Env = append(os.Environ(), "TOP="+top, "TMPDIR="+top, "HOME="+top)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// allowedCalls returns the numbers of the system calls that the unit allows, separated by commas.
func allowedCalls(unit []byte) (string, error) {
	if runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("no numbers of system calls for %s", runtime.GOARCH)
	}
	header, err := os.ReadFile("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
	if err != nil {
		return "", err
	}
	numbers := map[string]string{}
	for _, m := range regexp.MustCompile(`#define __NR_(\w+) (\d+)`).FindAllStringSubmatch(string(header), -1) {
		numbers[m[1]] = m[2]
	}
	listing, err := exec.Command("systemd-analyze", "syscall-filter", "--no-pager").Output()
	if err != nil {
		return "", err
	}
	sets, set := map[string][]string{}, ""
	for line := range strings.Lines(string(listing)) {
		switch name := strings.TrimSpace(line); {
		case strings.HasPrefix(line, "@"):
			set = name
		case name != "" && !strings.HasPrefix(name, "#"):
			sets[set] = append(sets[set], name)
		}
	}
	allowed := map[string]bool{}
	var add func(name string, allow bool)
	add = func(name string, allow bool) {
		for _, member := range sets[name] {
			add(member, allow)
		}
		allowed[name] = allow
	}
	for _, m := range regexp.MustCompile(`(?m)^SystemCallFilter=(~?)(.*)$`).FindAllSubmatch(unit, -1) {
		for name := range strings.FieldsSeq(string(m[2])) {
			add(name, len(m[1]) == 0)
		}
	}
	var list []string
	for name, allow := range allowed {
		if number := numbers[name]; allow && number != "" {
			list = append(list, number)
		}
	}
	if len(list) < 100 {
		return "", fmt.Errorf("only %d system calls are known", len(list))
	}
	slices.Sort(list)
	// The filter is there before the program is.
	return strings.Join(append(list, numbers["execve"]), ","), nil
}

// runFiltered is filteredProgram.
func runFiltered() {
	runtime.LockOSThread()
	const load, jumpEqual, ret, offsetOfNumber = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS,
		unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K, 0
	filter := []unix.SockFilter{{Code: load, K: offsetOfNumber}}
	for number := range strings.SplitSeq(os.Args[1], ",") {
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			panic(err)
		}
		filter = append(filter, unix.SockFilter{Code: jumpEqual, Jf: 1, K: uint32(n)},
			unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW})
	}
	filter = append(filter, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	path, err := exec.LookPath(os.Args[2])
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	}
	if err == nil {
		err = unix.Exec(path, os.Args[2:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "run-filtered:", err)
	os.Exit(1)
}
