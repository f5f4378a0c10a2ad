package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// syncersOfFiles is how many files are synced at once: the disk puts the syncs of several together.
const syncersOfFiles = 8

// SyncArtifacts makes durable what the work of an operation has left in its folder of artifacts, with all names there; work writes without syncing. What cannot
// be opened is left out: nobody can read it. The error is a *SyncError when the disk does not take it.
func (o *Owner) SyncArtifacts(id ID) error {
	if o.options.Durability != Power {
		return nil
	}
	var paths []string
	err := filepath.WalkDir(o.ArtifactsPath(id), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case passedOver(err):
			return nil
		case err != nil:
			return err
		case entry.IsDir() || entry.Type().IsRegular():
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list the artifacts of %s: %w", id, err)
	}
	if len(paths) == 0 {
		return nil
	}
	if err := sideBySide(paths, syncersOfFiles, syncPath); err != nil {
		return err
	}
	return o.syncDay(id.Day())
}

func syncPath(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|openNonblock, 0)
	if passedOver(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open what is to be delivered: %w", err)
	}
	err = f.Sync()
	_ = f.Close() // nothing was written through it
	if err != nil {
		return &SyncError{path, err}
	}
	return nil
}

// passedOver says that there is nothing to read, or not for us.
func passedOver(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}
