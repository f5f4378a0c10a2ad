package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// The values of GoneError.Reason.
const (
	GoneRemoved     = "removed"      // the folder was deleted
	GoneMoved       = "moved"        // the path is gone; the folder is elsewhere or was unmounted with its parent
	GoneReplaced    = "replaced"     // another folder or file is at the path
	GoneMountedOver = "mounted over" // another file system was mounted on the path
	GoneUnmounted   = "unmounted"    // the folder's file system was unmounted; the folder below it is visible
	GoneUnreachable = "unreachable"  // the path cannot be looked up
	GoneWatchLost   = "watch lost"   // the folder exists, but the kernel dropped the watch
)

// GoneError reports that the path is no longer reliably the folder that was opened. A name missing
// there was not removed deliberately.
type GoneError struct {
	Dir    string // absolute path of the watched folder
	Reason string // one of the Gone constants
	Err    error  // the failed lookup, nil if there was none
}

// Error returns what happened and what a person can do.
func (e *GoneError) Error() string {
	text := fmt.Sprintf("watched folder %s: %s: %s, then start again", e.Dir, e.Reason, goneAdvice[e.Reason])
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns Err.
func (e *GoneError) Unwrap() error { return e.Err }

var goneAdvice = map[string]string{
	GoneRemoved:     "restore the folder",
	GoneMoved:       "move the folder back or mount its file system",
	GoneReplaced:    "put the folder that was there back",
	GoneMountedOver: "unmount what was mounted on it",
	GoneUnmounted:   "mount its file system again",
	GoneUnreachable: "make the path accessible",
	GoneWatchLost:   "make sure that the folder stays where it is",
}

// Check compares the folder at the path with the opened folder and verifies that the watch still
// exists. It returns nil, a *GoneError, or an error that wraps fs.ErrClosed after Close. It
// costs a few microseconds; call it before acting on the absence of a name.
//
// The open descriptor on the folder makes the comparison safe, because its inode number is not
// reused. It also keeps the kernel from reporting the removal, so no event replaces this call.
func (d *Dir[K]) Check() error {
	if d.closed.Load() {
		return fmt.Errorf("check watched folder %s: %w", d.path, fs.ErrClosed)
	}
	now, err := os.Stat(d.path)
	if err == nil && os.SameFile(now, d.opened) {
		if d.mode.Name == ModeInotify && len(d.watcher.WatchList()) == 0 && !d.closed.Load() {
			return &GoneError{Dir: d.path, Reason: GoneWatchLost}
		}
		return nil
	}
	held, heldErr := d.root.Stat(".")
	if errors.Is(heldErr, fs.ErrClosed) {
		return fmt.Errorf("check watched folder %s: %w", d.path, heldErr)
	}
	gone := &GoneError{Dir: d.path, Err: err}
	switch {
	case err == nil:
		gone.Reason = replacedOrMounted(d.path, d.root)
	case !errors.Is(err, fs.ErrNotExist):
		gone.Reason = GoneUnreachable
	case heldErr == nil && linkCount(held) == 0:
		gone.Reason = GoneRemoved
	default:
		gone.Reason = GoneMoved
	}
	return gone
}

// linkCount returns the number of names of a file: 0 once it was removed.
func linkCount(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Nlink)
	}
	return 1
}

// replacedOrMounted returns why path is another folder than that of root. It uses mount
// IDs and the mount root attribute of statx(2), Linux 5.8 and later. On an older kernel it returns
// GoneReplaced.
func replacedOrMounted(path string, root *os.Root) string {
	var now, held unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &now) != nil {
		return GoneReplaced
	}
	folder, err := root.Open(".")
	if err != nil {
		return GoneReplaced
	}
	defer folder.Close()
	if unix.Statx(int(folder.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &held) != nil {
		return GoneReplaced
	}
	if now.Mask&held.Mask&unix.STATX_MNT_ID == 0 || now.Mnt_id == held.Mnt_id {
		return GoneReplaced
	}
	switch {
	case now.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return GoneMountedOver
	case held.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return GoneUnmounted
	}
	return GoneReplaced
}
