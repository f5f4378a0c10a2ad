package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// KeepAccessTime is the flag for an open that leaves the access time of the file as it is. The open fails with EPERM
// for the file of another user. See O_NOATIME in open(2).
const KeepAccessTime = unix.O_NOATIME

// renameNew moves a file to a name in any folder of the same file system, which must be free. The
// error wraps fs.ErrExist if the new name is taken.
func renameNew(from, to string) error {
	return renameat("rename", unix.AT_FDCWD, from, to, unix.RENAME_NOREPLACE, linkNew)
}

// renameat is renameat2(2), or the fallback on a file system that does not know the flags.
func renameat(op string, folder int, from, to string, flags uint, fallback func(from, to string) error) error {
	err := unix.Renameat2(folder, from, folder, to, flags)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return fallback(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: op, Old: from, New: to, Err: err}
	}
	return nil
}

// RenameFree renames a file inside one folder to a name that must be free. The error wraps
// fs.ErrExist if the name is taken, and fs.ErrNotExist if the old name is gone. This rename is the
// compare-and-swap of the state machine: of two renames that race for one marker, exactly one
// succeeds.
func RenameFree(folder *os.File, from, to string) error {
	return WithDescriptor(folder, func(fd int) error {
		return renameat("rename", fd, from, to, unix.RENAME_NOREPLACE, func(from, to string) error {
			return renamePortable(folder.Name(), from, to)
		})
	})
}

// swap atomically exchanges a file with an existing one. The error wraps fs.ErrNotExist if the
// target does not exist. The replaced file then has the name of the new one.
func swap(from, to string) error {
	return renameat("swap", unix.AT_FDCWD, from, to, unix.RENAME_EXCHANGE, swapPortable)
}

// createUnnamed writes a file that has no name until it is complete and then gives it one, which
// must be free. This is half the work of a temporary name and a rename; no other process can remove
// the file before it has its name, and nothing is left of it if the process ends. See O_TMPFILE in
// open(2). The error wraps errors.ErrUnsupported if the file system has no such files.
func (w *Writer) createUnnamed(target string, data []byte) error {
	if w.named.Load() {
		return errors.ErrUnsupported
	}
	fd, err := OpenDescriptor(unix.AT_FDCWD, w.tmp, w.tmp, unix.O_WRONLY|unix.O_TMPFILE, Mode)
	for _, never := range []error{unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL, unix.ENOSYS, unix.ENOTDIR, unix.ELOOP} {
		if errors.Is(err, never) {
			w.named.Store(true)
			return errors.ErrUnsupported
		}
	}
	if err != nil {
		return err
	}
	return w.writeNew(fd, w.tmp, data, false, func() error { return linkUnnamed(fd, w.tmp, target) })
}

// linkUnnamed gives such a file its name.
func linkUnnamed(fd int, path, target string) error {
	err := retryInterrupted("link", path, func() error {
		return unix.Linkat(fd, "", unix.AT_FDCWD, target, unix.AT_EMPTY_PATH)
	})
	if errors.Is(err, unix.ENOENT) { // it takes a capability before Linux 6.10
		err = retryInterrupted("link", path, func() error {
			return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, target, unix.AT_SYMLINK_FOLLOW)
		})
	}
	failed, _ := errors.AsType[*fs.PathError](err)
	switch {
	case failed == nil:
		return err
	case errors.Is(err, unix.ENOENT): // no /proc, or no folder: the fallback reports which
		return errors.ErrUnsupported
	}
	return &os.LinkError{Op: "link", Old: path, New: target, Err: failed.Err}
}

// Identify returns the identity of a file of an open folder, and how many names (links) it has. It
// uses statx(2), which returns the creation time if the file system stores it.
func Identify(fd int, file string) (Identity, uint64, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, file, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_NLINK|unix.STATX_BTIME, &st)
	if errors.Is(err, unix.ENOSYS) {
		return identifyByStat(fd, file)
	}
	identity := Identity{Inode: st.Ino}
	if err == nil && st.Mask&unix.STATX_BTIME != 0 {
		identity.Born = time.Unix(st.Btime.Sec, int64(st.Btime.Nsec))
	}
	return identity, uint64(st.Nlink), err
}

// FullReason returns what the file system of a folder has run out of, "" if it has space. A few
// free blocks count as none: a record takes one. See statfs(2).
func FullReason(dir string) (string, error) {
	var info unix.Statfs_t
	if err := unix.Statfs(dir, &info); err != nil {
		return "", fmt.Errorf("free space on the disk of %s: %w", dir, err)
	}
	switch {
	case info.Flags&unix.ST_RDONLY != 0:
		return "the file system is mounted read-only", nil
	case info.Blocks > 0 && info.Bavail < 4:
		return "the disk is full", nil
	case info.Files > 0 && info.Ffree < 4:
		return "all inodes of the file system are used", nil
	}
	return "", nil
}

// MountOf identifies the mount through which an open file was reached, "" if the system does not tell. A file system
// that is mounted again has another mount, unless the kernel is older than 6.8 and uses the numbers again.
func MountOf(f *os.File) (mount string) {
	_ = WithDescriptor(f, func(fd int) error {
		var st unix.Statx_t
		if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID_UNIQUE|unix.STATX_MNT_ID, &st); err != nil {
			return err
		}
		if st.Mask&(unix.STATX_MNT_ID_UNIQUE|unix.STATX_MNT_ID) != 0 {
			mount = fmt.Sprintf("%x.%d:%d", st.Mnt_id, st.Dev_major, st.Dev_minor)
		}
		return nil
	})
	return mount
}

// syncable are the file systems on which syncfs(2) is known to write everything and to report what failed, by the magic
// number of statfs(2).
var syncable = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true,
	unix.TMPFS_MAGIC: true,
}

// SyncFileSystem syncs the file system of an open file as a whole. It returns false if that is not possible there. The
// error is a *SyncError.
func SyncFileSystem(f *os.File) (done bool, err error) {
	err = WithDescriptor(f, func(fd int) error {
		var info unix.Statfs_t
		if err := unix.Fstatfs(fd, &info); err != nil || !syncable[info.Type] {
			return nil //nolint:nilerr // each file is synced instead
		}
		done = true
		return retryInterrupted("sync", f.Name(), func() error { return unix.Syncfs(fd) })
	})
	if err != nil {
		return done, &SyncError{f.Name(), err}
	}
	return done, nil
}

// WriteAt writes data into an open file at an offset. With durable, the data is on the disk when it returns, without
// what else is unsynced of the file; see RWF_DSYNC in pwritev2(2). Then every error but a full disk is a *SyncError.
func WriteAt(f *os.File, data []byte, offset int64, durable bool) error {
	if !durable {
		_, err := f.WriteAt(data, offset)
		return err
	}
	err := WithDescriptor(f, func(fd int) error {
		for len(data) > 0 {
			n, err := unix.Pwritev2(fd, [][]byte{data}, offset, unix.RWF_DSYNC)
			switch {
			case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
				return writeAndSync(f, data, offset)
			case errors.Is(err, unix.EINTR):
				continue
			case err == nil && n == 0:
				return io.ErrShortWrite
			case err != nil:
				return err
			}
			data, offset = data[n:], offset+int64(n)
		}
		return nil
	})
	return asFailedSync(f, err)
}
