//go:build !linux

package statefs

import (
	"os"
	"syscall"
)

const openNonblock = syscall.O_NONBLOCK | syscall.O_NOFOLLOW

func renameNew(from, to string) error { return linkNew(from, to) }

func renameFree(folder *os.File, from, to string) error {
	return renamePortable(folder.Name(), from, to)
}

func swap(from, to string) error { return swapPortable(from, to) }
