package catalog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/statefs/files"
)

// listing is the result of listing the job folders.
type listing struct {
	files    []string // definition files, in the order in which they are read
	folders  []string // every folder that was listed
	unread   []string // folders that could not be listed
	problems Problems
}

// ConfigurationFile is the default name of the daemon's configuration file. A file with that name is not a
// definition, because people keep both in one folder.
const ConfigurationFile = "jobdir.yaml"

// listFolders finds definition files: *.yaml and *.yml, folder by folder, sorted. It skips names that begin
// with a dot and the daemon's configuration. Anything but a regular file with such a name is a problem; a folder
// is listed too.
func listFolders(dirs []string) listing {
	var l listing
	for _, dir := range dirs {
		l.walk(filepath.Clean(dir), true)
	}
	return l
}

func (l *listing) walk(dir string, top bool) {
	if slices.Contains(l.folders, dir) {
		return // given twice, or inside another given folder
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) && !top {
		return
	}
	if err != nil {
		l.unread = append(l.unread, dir)
		l.problems = append(l.problems, Position{File: dir}.Problem("", "the folder cannot be read: %s", cause(err)))
		return
	}
	if !top && isStorage(entries) {
		return
	}
	l.folders = append(l.folders, dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if isDefinition(e.Name()) && !slices.Contains(l.files, path) {
			l.files = append(l.files, path)
		}
		if e.IsDir() {
			l.walk(path, false)
		}
	}
}

// isStorage reports whether a folder is the storage of a daemon, which may be among its job folders. The
// definitions stored there belong to submitted operations; read as jobs, they would take the names of the
// real ones.
func isStorage(entries []fs.DirEntry) bool {
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
	}
	return has("storage.json") && has("jobs") && has("definitions")
}

// isDefinition reports whether a file of this name is a definition.
func isDefinition(name string) bool {
	ext := filepath.Ext(name)
	return (ext == ".yaml" || ext == ".yml") && name != ConfigurationFile
}

// wrongKind returns what a file is if it is neither a regular file nor a link to one, else "". It does not open the
// file. A broken link is not wrong: reading it reports the error.
func wrongKind(path string) string {
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() {
		return ""
	}
	return files.KindOf(info.Mode())
}

// isGone reports whether a name does not exist, not even as a broken link.
func isGone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// covers reports whether a path is in a folder that could not be listed.
func (l *listing) covers(path string) bool {
	return slices.ContainsFunc(l.unread, func(dir string) bool {
		return dir == "." && !filepath.IsAbs(path) || strings.HasPrefix(path, strings.TrimRight(dir, "/")+"/")
	})
}

// cause is an error without the operation and path, which the problem names.
func cause(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}
