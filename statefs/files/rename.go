package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/natefinch/atomic"
	"golang.org/x/sys/unix"
)

// renamePortable checks that the new name is free and then renames. Another program may take the
// name in between; only Linux has a rename that cannot overwrite.
func renamePortable(dir, from, to string) error {
	target := filepath.Join(dir, to)
	if _, err := os.Lstat(target); err == nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: os.ErrExist}
	}
	if err := atomic.ReplaceFile(filepath.Join(dir, from), target); err != nil {
		return fmt.Errorf("rename %s to %s: %w", from, to, err)
	}
	return nil
}

// linkNew is renameNew where the rename cannot refuse a taken name; a link can.
func linkNew(from, to string) error {
	if err := os.Link(from, to); err != nil {
		return err
	}
	_ = os.Remove(from) // the new name exists: from here on the caller must get no error
	return nil
}

// swapPortable checks that the target exists and then replaces it. It may be removed in between.
func swapPortable(from, to string) error {
	if _, err := os.Lstat(to); err != nil {
		return err
	}
	return rename(from, to)
}

// rename is os.Rename without the stat of the target, which the kernel checks too.
func rename(from, to string) error {
	for {
		err := unix.Rename(from, to)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EINTR):
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
		}
	}
}
