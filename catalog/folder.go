package catalog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// listing is what a look into the job folders found.
type listing struct {
	files    []string // definition files, in the order in which they are read
	folders  []string // every folder that was listed
	unread   []string // folders that could not be listed
	problems Problems
}

// ConfigurationFile is the name under which the daemon looks for its
// configuration. A file of that name is no definition: people keep both in one
// folder.
const ConfigurationFile = "jobdir.yaml"

// listFolders looks for definition files: *.yaml and *.yml, folder by folder, in
// sorted order. Names that begin with a dot are left out, and so are the daemon's
// configuration, symbolic links to folders, fifos and whatever else is no file.
func listFolders(dirs []string) listing {
	var l listing
	for _, dir := range dirs {
		l.walk(filepath.Clean(dir), true)
	}
	return l
}

func (l *listing) walk(dir string, top bool) {
	if slices.Contains(l.folders, dir) {
		return // given twice, or inside another one that is given
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) && !top {
		return
	}
	if err != nil {
		l.unread = append(l.unread, dir)
		l.problems = append(l.problems, &Problem{File: dir, Message: "the folder cannot be read: " + cause(err)})
		return
	}
	if !top && isStorage(entries) {
		return
	}
	l.folders = append(l.folders, dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			l.walk(path, false)
		case isDefinition(path, e) && !slices.Contains(l.files, path):
			l.files = append(l.files, path)
		}
	}
}

// isStorage tells whether a folder is the storage of a daemon, which may lie among
// its jobs: the definitions that are kept there are of what was submitted, and
// read as jobs they would take the names of the real ones.
func isStorage(entries []fs.DirEntry) bool {
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
	}
	return has("storage.json") && has("jobs") && has("definitions")
}

// isDefinition tells whether an entry is a regular file of the right name, or a
// link to a regular file. A link that leads nowhere counts too: reading it then
// reports why.
func isDefinition(path string, e fs.DirEntry) bool {
	if ext := filepath.Ext(path); ext != ".yaml" && ext != ".yml" || e.Name() == ConfigurationFile {
		return false
	}
	if e.Type()&fs.ModeSymlink == 0 {
		return e.Type().IsRegular()
	}
	info, err := os.Stat(path)
	return err != nil || info.Mode().IsRegular()
}

// isGone tells whether nothing of that name is left, not even a link to nothing.
func isGone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// covers tells whether a path lies in one of the folders that could not be listed.
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
