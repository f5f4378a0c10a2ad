package s3test

import (
	"os/exec"
	"syscall"
)

// killWithParent makes a process end when its parent ends.
func killWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
