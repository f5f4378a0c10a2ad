package daemon

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
)

// maxArtifacts is how many artifacts the record and the footer name; the folder has all.
const maxArtifacts = 1000

// leftArtifacts returns the names of the files that the work left in its folder of artifacts, and removes the folder when there
// are none.
func (r *run) leftArtifacts() []string {
	dir := r.owner.ArtifactsPath(r.id)
	if err := syscall.Rmdir(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil // it was empty, or nobody made it
	}
	return artifactsIn(dir)
}

func artifactsIn(dir string) []string {
	var names []string
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // what cannot be listed is not named; it stays where it is
		}
		if name, err := filepath.Rel(dir, path); err == nil {
			names = append(names, filepath.ToSlash(name))
		}
		if len(names) == maxArtifacts {
			return fs.SkipAll
		}
		return nil
	})
	slices.Sort(names)
	return names
}
