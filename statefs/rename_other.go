//go:build !linux

package statefs

import (
	"os"
	"syscall"
)

const openNonblock = syscall.O_NONBLOCK | syscall.O_NOFOLLOW

func renameFree(folder *os.File, from, to string) error {
	return renamePortable(folder.Name(), from, to)
}
