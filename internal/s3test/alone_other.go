//go:build !linux

package s3test

import "os/exec"

// alone does nothing here: a server whose test is killed has to be ended by hand.
func alone(*exec.Cmd) {}
