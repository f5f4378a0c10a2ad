package statefs

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Identity distinguishes a file in jobs/ from every other file there. A rename or another link
// keeps it.
type Identity struct {
	// Inode is the inode number. After a removal, a file system may reuse it for a new file.
	Inode uint64
	// Born is the creation time, which no system call can change; the zero time if the system or
	// the file system does not provide it.
	Born time.Time
}

// Same reports whether two identities are of the same file. The zero Identity is of no file.
func (i Identity) Same(other Identity) bool {
	return i.Inode != 0 && i.Inode == other.Inode && (i.Born.IsZero() || other.Born.IsZero() || i.Born.Equal(other.Born))
}

// Identify returns the identity of a file in jobs/, and how many names (links) it has. The error
// wraps fs.ErrNotExist if the file does not exist.
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

// identifyByStat returns the identity that stat(2) provides on every Unix.
func identifyByStat(fd int, file string) (Identity, uint64, error) {
	var st unix.Stat_t
	err := unix.Fstatat(fd, file, &st, unix.AT_SYMLINK_NOFOLLOW)
	return Identity{Inode: st.Ino}, uint64(st.Nlink), err
}
