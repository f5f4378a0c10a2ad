package statefs

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Identity tells a file in jobs/ from every other one there, and under all of its names. A rename keeps it.
type Identity struct {
	// Inode is the inode number. A file system may give it to the next file once a file is removed.
	Inode uint64
	// Born is when the file was made, which no call can change; the zero time where the system or the file system does not say.
	Born time.Time
}

// Same reports whether two identities are of one file. The zero Identity is of none.
func (i Identity) Same(other Identity) bool {
	return i.Inode != 0 && i.Inode == other.Inode && (i.Born.IsZero() || other.Born.IsZero() || i.Born.Equal(other.Born))
}

// Identify returns the identity of a file in jobs/, and how many names it has. The error wraps fs.ErrNotExist when there is none.
func (t *Tree) Identify(file string) (identity Identity, names uint64, err error) {
	if path.Base(file) != file || !filepath.IsLocal(file) || file == "." {
		return Identity{}, 0, fmt.Errorf("identify %q: %w", file, fs.ErrInvalid)
	}
	err = withDescriptor(t.raw, func(fd int) error {
		identity, names, err = identifyAt(fd, file)
		return err
	})
	if err != nil {
		return Identity{}, 0, fmt.Errorf("identify %s: %w", file, err)
	}
	return identity, names, nil
}

// identifyByStat is what every Unix can say of a file.
func identifyByStat(fd int, file string) (Identity, uint64, error) {
	var st unix.Stat_t
	err := unix.Fstatat(fd, file, &st, unix.AT_SYMLINK_NOFOLLOW)
	return Identity{Inode: st.Ino}, uint64(st.Nlink), err
}
