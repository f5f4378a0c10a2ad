package cli_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The systemd unit starts the daemon in a way that it understands, and a stop of it ends the daemon alone.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../contrib/jobdir.service")
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			settings[name] = value
		}
	}
	if settings["KillMode"] != "process" {
		t.Errorf("KillMode is %q: a stop would end the commands", settings["KillMode"])
	}
	if settings["StateDirectory"] == "" {
		t.Error("there is no storage directory")
	}
	args := strings.Fields(settings["ExecStart"])
	if len(args) < 2 || args[1] != "serve" {
		t.Fatalf("ExecStart is %q", settings["ExecStart"])
	}
	// With a listener that cannot be, serve reads all of its flags and ends before it makes anything.
	cmd := exec.CommandContext(t.Context(), "jobdir", append(args[1:], "--storage", t.TempDir(), "--listen", "nowhere")...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err == nil || !strings.Contains(said.String(), "nowhere") ||
		strings.Contains(said.String(), "unknown flag") {
		t.Errorf("%v says %s", err, said.String())
	}
	path, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: apt-get install systemd")
	}
	out, err := exec.CommandContext(t.Context(), path, "verify", "--man=no", "../contrib/jobdir.service").CombinedOutput()
	if err != nil && !bytes.Contains(out, []byte("is not executable")) &&
		!bytes.Contains(out, []byte("jobdir: No such file")) {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
	// At most 4.0, and each setting that is open has its reason in the file.
	out, err = exec.CommandContext(t.Context(), path, "security", "--offline=true", "--no-pager", "--threshold=40",
		"../contrib/jobdir.service").CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		open, found := strings.CutPrefix(line, "✗ ")
		if !found {
			continue
		}
		for name := range strings.SplitSeq(strings.Fields(open)[0], "/") { // such as RootDirectory=/RootImage=
			name, value, _ := strings.Cut(name, "=")
			if group, found := strings.CutPrefix(value, "~@"); found { // of the system calls
				name = group
			}
			if !regexp.MustCompile(`(?m)^#.*\b`+regexp.QuoteMeta(name)+`\b`).Match(data) && settings[name] == "" {
				t.Errorf("the unit gives no reason for leaving this open: %s", strings.TrimSpace(line))
			}
		}
	}
}

// The files beside the unit make its user, and the folders that it names.
func TestUserAndFoldersOfTheUnit(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"sysusers", "tmpfiles"} {
		file, err := filepath.Abs("../contrib/" + tool + ".d/jobdir.conf")
		if err != nil {
			t.Fatal(err)
		}
		path, err := exec.LookPath("systemd-" + tool)
		if err != nil || os.Geteuid() != 0 {
			t.Skipf("systemd-%s makes users and folders as root: %v", tool, err)
		}
		args := map[string][]string{"tmpfiles": {"--create"}}[tool]
		out, err := exec.CommandContext(t.Context(), path, append(args, "--root="+root, file)...).CombinedOutput()
		if err != nil {
			t.Fatalf("systemd-%s: %v\n%s", tool, err, out)
		}
	}
	users, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil || !bytes.HasPrefix(users, []byte("jobdir:")) {
		t.Errorf("no user jobdir: %s %v", users, err)
	}
	for name, mode := range map[string]os.FileMode{"etc/jobdir/jobs": 0o755, "var/lib/jobdir": 0o750} {
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
}

// The daemon notifies the service manager when it serves, lives and stops; its commands do not inherit the
// notification socket.
func TestNotifiesTheServiceManager(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	hear := func(want string) {
		t.Helper()
		if err := manager.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for heard := make([]byte, 4096); ; {
			n, err := manager.Read(heard)
			if err != nil {
				t.Fatalf("the manager hears no %s: %v", want, err)
			}
			if strings.HasPrefix(string(heard[:n]), want) {
				return
			}
		}
	}
	job := "group: g\nname: env\nrun: [sh, -c, 'env | grep -c -e NOTIFY -e WATCHDOG; true']\n"
	if err := os.WriteFile(filepath.Join(dir, "job.yaml"), []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "jobdir", "serve", "--storage", filepath.Join(dir, "storage"), "--jobs", dir,
		"--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "NOTIFY_SOCKET="+filepath.Join(dir, "notify"),
		"WATCHDOG_USEC=100000")
	said := newScreen()
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hear("READY=1\nSTATUS=serving ")
	hear("WATCHDOG=1")
	hear("WATCHDOG=1")
	run := exec.CommandContext(t.Context(), "jobdir", "run", "--raw", "g/env")
	run.Env = append(os.Environ(), "JOBDIR_SERVER=unix:"+filepath.Join(dir, "storage", "jobdir.sock"))
	if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), "\n0\n") {
		t.Errorf("the command has the settings of the manager: %v\n%s", err, out)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	hear("STOPPING=1")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
