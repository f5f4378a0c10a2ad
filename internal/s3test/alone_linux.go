package s3test

import (
	"os/exec"
	"syscall"
)

// alone has a process end with the one that starts it.
func alone(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
