package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

func (t *Tree) quarantine(name, reason string) error {
	_, err := t.moveToCorrupt(t.root.Rename, name, reason)
	return err
}

// moveToCorrupt moves or links a file into corrupt/ and returns its name there once it has one.
func (t *Tree) moveToCorrupt(rename func(from, to string) error, name, reason string) (target string, err error) {
	if err := MakeFolder(filepath.Join(t.dir, corruptDir)); err != nil {
		return "", fmt.Errorf("move %s to %s: %w", name, corruptDir, err)
	}
	now := t.options.Now()
	target, err = t.corruptName(now, path.Base(name))
	if err != nil {
		return "", err
	}
	if err := rename(name, target); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		return "", fmt.Errorf("move %s to %s: %w", name, corruptDir, err)
	}
	note := fmt.Sprintf("%s\n%q: %s\n", now.Format(StampFormat), name, reason)
	return target, t.files.replaceUnsynced(target+".reason", []byte(note))
}

// corruptName returns a free name in corrupt/. A file name that would be too long is cut; the
// reason file holds the whole one.
func (t *Tree) corruptName(now time.Time, base string) (string, error) {
	base = base[:min(len(base), 200)]
	for n := 1; ; n++ {
		name := path.Join(corruptDir, fmt.Sprintf("%s_%s", now.Format("2006-01-02T15-04-05.000000"), base))
		if n > 1 {
			name += fmt.Sprintf(".%d", n)
		}
		_, err := t.root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return name, nil
		}
		if err != nil {
			return "", fmt.Errorf("find a name in %s: %w", corruptDir, err)
		}
	}
}

// clearReservedNames moves files of the wrong kind from the names that the daemon opens, so that
// they cannot keep it from starting.
func (t *Tree) clearReservedNames() error {
	entries, err := os.ReadDir(t.dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", t.dir, err)
	}
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case name == socketFile && !entry.IsDir(): // an old socket, or a file that the new one replaces
			continue
		case name == socketFile, name == storageFile, name == liveFile, name == outboxFile,
			strings.HasPrefix(name, "history.db"):
		case strings.HasPrefix(name, "keeper-") && (strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, ".log")):
		default:
			continue
		}
		if err := t.clearName(name); err != nil {
			return err
		}
	}
	return nil
}

// clearName moves whatever has the name of a regular file and is not one to corrupt/. It never
// follows a link.
func (t *Tree) clearName(name string) error { return t.clearBy(t.quarantine, name) }

// clearForRename is clearName before a rename to the name. The old file keeps its name until the
// rename, unless it is a folder, which a rename cannot replace: without a record, a marker would
// have no operation.
func (t *Tree) clearForRename(name string) error { return t.clearBy(t.quarantineCopy, name) }

// quarantineCopy is quarantine by a hard link.
func (t *Tree) quarantineCopy(name, reason string) error {
	if info, err := t.root.Lstat(name); err != nil || info.IsDir() { // a folder cannot have a second name
		return t.quarantine(name, reason)
	}
	target, err := t.moveToCorrupt(t.root.Link, name, reason)
	if err != nil && target != "" {
		_ = t.root.Remove(target) // a retry links it again
	}
	return err
}

func (t *Tree) clearBy(move func(name, reason string) error, name string) error {
	info, err := os.Lstat(filepath.Join(t.dir, name))
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", name, err)
	}
	reason := fmt.Sprintf("it is a %s, and a file has its place here", fileKind(info.Mode()))
	err = move(name, reason)
	if err == nil && t.options.Cleared != nil {
		t.options.Cleared(name, reason)
	}
	return err
}
