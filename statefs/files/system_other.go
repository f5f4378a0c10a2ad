//go:build !linux

package files

import (
	"errors"
	"os"
)

// KeepAccessTime has no meaning: only Linux can leave the access time alone.
const KeepAccessTime = 0

func renameNew(from, to string) error { return linkNew(from, to) }

// RenameFree renames a file inside one folder to a name that must be free.
func RenameFree(folder *os.File, from, to string) error {
	return renamePortable(folder.Name(), from, to)
}

func swap(from, to string) error { return swapPortable(from, to) }

// createUnnamed returns errors.ErrUnsupported: only Linux has files without a name.
func (w *Writer) createUnnamed(string, []byte) error { return errors.ErrUnsupported }

// Identify returns the identity of a file of an open folder, and how many names (links) it has.
func Identify(fd int, file string) (Identity, uint64, error) { return identifyByStat(fd, file) }

// FullReason reports free space: it is checked on Linux only.
func FullReason(string) (string, error) { return "", nil }

// MountOf identifies a mount on Linux only.
func MountOf(*os.File) string { return "" }

// SyncFileSystem syncs a whole file system on Linux only.
func SyncFileSystem(*os.File) (done bool, err error) { return false, nil }

// WriteAt writes data into an open file at an offset. With durable, the file is synced then.
func WriteAt(f *os.File, data []byte, offset int64, durable bool) error {
	if !durable {
		_, err := f.WriteAt(data, offset)
		return err
	}
	return asFailedSync(f, writeAndSync(f, data, offset))
}
