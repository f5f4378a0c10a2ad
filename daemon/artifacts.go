package daemon

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/jobdir/jobdir/statefs"
)

// maxArtifacts bounds how many artifacts the record and the footer name; the folder holds all of
// them.
const maxArtifacts = 1000

// collectArtifacts returns the names of the files in the run's artifact folder. It removes the
// folder if it is empty.
func (r *run) collectArtifacts() []string {
	dir := r.owner.ArtifactsPath(r.id)
	if err := syscall.Rmdir(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil // it was empty, or does not exist
	}
	return listArtifacts(dir)
}

func listArtifacts(dir string) []string {
	var names []string
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // a file that cannot be listed is not named and stays in the folder
		}
		if name, err := filepath.Rel(dir, path); err == nil {
			names = append(names, statefs.ArtifactName(filepath.ToSlash(name)))
		}
		if len(names) == maxArtifacts {
			return fs.SkipAll
		}
		return nil
	})
	slices.Sort(names)
	return names
}
