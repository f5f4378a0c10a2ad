package statefs

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/jobdir/jobdir/statefs/files"
)

// adviceFor suggests what a person can do about err, an error of using the storage. It continues a
// sentence.
func adviceFor(err error) string {
	switch {
	case errors.Is(err, syscall.EROFS):
		return "mount the file system for writing, or choose another directory with --storage"
	case files.DiskFull(err):
		return "make room on that disk, or choose another directory with --storage"
	case errors.Is(err, fs.ErrPermission):
		return "start the daemon as the user to whom it belongs, choose another directory with --storage or give the daemon's user the right to write there"
	}
	return "choose another directory with --storage or give the daemon's user the right to write there"
}
