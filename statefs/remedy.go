package statefs

import (
	"errors"
	"io/fs"
	"syscall"
)

// remedy says what a person can do when the storage cannot be used because of err. It continues a sentence.
func remedy(err error) string {
	switch {
	case errors.Is(err, syscall.EROFS):
		return "mount the file system for writing, or choose another directory with --storage"
	case Scarce(err):
		return "make room on that disk, or choose another directory with --storage"
	case errors.Is(err, fs.ErrPermission):
		return "start the daemon as the user to whom it belongs, choose another directory with --storage or give the daemon's user the right to write there"
	}
	return "choose another directory with --storage or give the daemon's user the right to write there"
}

// kindOf names what is where something else should be.
func kindOf(mode fs.FileMode) string {
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
