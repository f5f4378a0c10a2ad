package statefs

import (
	"errors"
	"io/fs"
	"syscall"
)

// adviceFor suggests what a person can do about err, an error of using the storage. It continues a
// sentence.
func adviceFor(err error) string {
	switch {
	case errors.Is(err, syscall.EROFS):
		return "mount the file system for writing, or choose another directory with --storage"
	case DiskFull(err):
		return "make room on that disk, or choose another directory with --storage"
	case errors.Is(err, fs.ErrPermission):
		return "start the daemon as the user to whom it belongs, choose another directory with --storage or give the daemon's user the right to write there"
	}
	return "choose another directory with --storage or give the daemon's user the right to write there"
}

// fileKind names the kind of a file, for messages about a file of the wrong kind.
func fileKind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "file"
	case mode.IsDir():
		return "folder"
	case mode&fs.ModeSymlink != 0:
		return "symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "fifo"
	case mode&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}
