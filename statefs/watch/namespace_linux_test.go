package watch

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const childVariable = "JOBDIR_WATCH_TEST_CHILD"

// inChild runs the calling test again in a child process. In the parent it returns false once the
// child has succeeded. In the child it returns true, and the test goes on.
func inChild(t *testing.T, attributes *syscall.SysProcAttr) bool {
	t.Helper()
	if os.Getenv(childVariable) == t.Name() {
		return true
	}
	command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	command.Env = append(os.Environ(), childVariable+"="+t.Name())
	attributes.Pdeathsig = syscall.SIGKILL
	command.SysProcAttr = attributes
	output, err := command.CombinedOutput()
	if err != nil && command.ProcessState == nil && attributes.Cloneflags != 0 {
		t.Skipf("needs a user namespace (as root, or with kernel.unprivileged_userns_clone=1 and "+
			"user.max_user_namespaces above 0): %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if bytes.Contains(output, []byte("--- SKIP")) {
		t.Skipf("%s", output)
	}
	return false
}

// inNamespace is inChild with user, mount and process namespaces: the child may mount and set its
// own inotify limits without root, and whatever it leaves ends with it.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if !inChild(t, &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}) {
		return false
	}
	// Some systems grant the namespace but no rights in it.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skipf("needs the right to mount in a user namespace (as root, or with "+
			"kernel.apparmor_restrict_unprivileged_userns=0): %v", err)
	}
	return true
}
