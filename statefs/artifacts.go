package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/jobdir/jobdir/statefs/files"
)

// syncersOfFiles is how many files are synced at once, so that the disk can combine their syncs.
const syncersOfFiles = 8

// SyncArtifacts makes the artifacts of an operation and their names durable; the work writes them
// without a sync. Files that cannot be opened are skipped. The error is a *files.SyncError if a sync
// fails.
func (o *Owner) SyncArtifacts(id ID) error {
	if o.options.Durability != Power {
		return nil
	}
	var paths []string
	err := filepath.WalkDir(o.ArtifactsPath(id), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case unreadable(err):
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
	if err := forEachParallel(paths, syncersOfFiles, syncPath); err != nil {
		return err
	}
	return o.syncDay(id.Day())
}

func syncPath(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|files.Nonblock, 0)
	if unreadable(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open what is to be delivered: %w", err)
	}
	err = f.Sync()
	_ = f.Close() // nothing was written through it
	if err != nil {
		return &files.SyncError{Path: path, Err: err}
	}
	return nil
}

// unreadable reports whether err means that a file does not exist or may not be read.
func unreadable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}

// ArtifactName returns the name under which an artifact is listed and fetched: its file name, with
// bytes that a URL cannot carry escaped as %0A. A % is escaped too where it would be read as such
// an escape.
func ArtifactName(file string) string {
	plain := utf8.ValidString(file) && !strings.ContainsFunc(file, unaddressable)
	if plain && ArtifactFile(file) == file {
		return file
	}
	var b strings.Builder
	for len(file) > 0 {
		c, size := utf8.DecodeRuneInString(file)
		if c == '%' || unaddressable(c) || c == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, "%%%02X", file[0])
		} else {
			b.WriteString(file[:size])
		}
		file = file[size:]
	}
	return b.String()
}

// unaddressable reports whether a character is not allowed in the path of a URL.
func unaddressable(c rune) bool { return c < ' ' || c == 0x7f || c == '\\' }

// ArtifactFile returns the file name of an artifact, given its listed name.
func ArtifactFile(name string) string {
	file, err := url.PathUnescape(name)
	if err != nil {
		return name
	}
	return file
}
