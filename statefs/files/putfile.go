package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// PutFile stores content under a name, with slashes, below a folder outside the storage, and
// creates the folders on the path. The file appears as a whole or not at all: content before name,
// and both are on disk when it returns. It replaces a file or a symbolic link of that name, and
// follows no link out of the folder. mark is part of the temporary name, so that a retry after a
// crash removes what the first attempt left. It returns the size in bytes.
func PutFile(folder, name, mark string, content io.Reader) (size int64, err error) {
	if !fs.ValidPath(name) || name == "." {
		if len(name) > 128 {
			name = name[:125] + "..."
		}
		return 0, fmt.Errorf("put %q into %s: %w", name, folder, fs.ErrInvalid)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := makeFolders(root, path.Dir(name)); err != nil {
		return 0, err
	}
	temp := path.Join(path.Dir(name), ".jobdir-"+mark+".tmp")
	size, err = writeTemp(root, temp, content)
	if err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		_ = root.Remove(temp) // the first error counts
		return 0, err
	}
	return size, syncRooted(root, path.Dir(name))
}

// makeFolders creates the folders down to dir. Each name is on disk before anything is created
// below it.
func makeFolders(root *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	if info, err := root.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := makeFolders(root, path.Dir(dir)); err != nil {
		return err
	}
	if err := root.Mkdir(dir, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncRooted(root, path.Dir(dir))
}

func writeTemp(root *os.Root, temp string, content io.Reader) (size int64, err error) {
	if err := root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, Mode)
	if err != nil {
		return 0, err
	}
	size, err = io.Copy(f, content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("write %s after %d bytes: %w", path.Join(root.Name(), temp), size, err)
	}
	return size, nil
}

func syncRooted(root *os.Root, dir string) error {
	f, err := root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
