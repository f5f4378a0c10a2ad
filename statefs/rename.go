package statefs

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/natefinch/atomic"
)

// renamePortable looks for the new name and then renames. Between the two somebody may take the name; only Linux has a rename
// that cannot overwrite.
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

// linkNew is renameNew where no rename refuses a name that is taken: a link does.
func linkNew(from, to string) error {
	if err := os.Link(from, to); err != nil {
		return err
	}
	_ = os.Remove(from) // the name counts: once it is there the caller must not hear of an error
	return nil
}

// swapPortable looks whether there is something to replace and then replaces it. Between the two somebody may remove it.
func swapPortable(from, to string) error {
	if _, err := os.Lstat(to); err != nil {
		return err
	}
	return rename(from, to)
}
