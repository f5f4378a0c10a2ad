//go:build !linux

package s3test

import "os/exec"

// killWithParent does nothing here: if a test is killed, its server has to be ended manually.
func killWithParent(*exec.Cmd) {}
