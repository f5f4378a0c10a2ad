package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/journal"
)

// Summary describes a copy.
type Summary struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

const (
	journalDir  = "journal"
	storageFile = "storage.json"
	// updateEvery is how often the journal is copied while it is written.
	updateEvery = 50 * time.Millisecond
	// maxTries is how often everything is copied before Copy gives up.
	maxTries = 5
)

// errChanged means that the copy must be made again.
var errChanged = errors.New("a daemon was started or stopped, or its journal changed too fast, while the storage was copied: try again")

// Copy copies a storage to a folder that does not exist or is empty. The folder appears when the copy is complete and
// on the disk; until then it is beside it, with the suffix ".partial". After an error nothing is left.
func Copy(ctx context.Context, tree *statefs.Tree, to string) (sum Summary, err error) {
	to, err = filepath.Abs(to)
	if err != nil {
		return sum, fmt.Errorf("copy %s: %w", tree.Dir(), err)
	}
	if rel, err := filepath.Rel(tree.Dir(), to); err == nil && filepath.IsLocal(rel) {
		return sum, fmt.Errorf("copy %s: %s is inside of it: choose another folder", tree.Dir(), to)
	}
	if there, err := os.ReadDir(to); !errors.Is(err, fs.ErrNotExist) && (err != nil || len(there) > 0) {
		return sum, fmt.Errorf("copy %s: %s is not an empty folder: choose another one", tree.Dir(), to)
	}
	partial := to + ".partial"
	for range maxTries {
		if err = files.MakeNewFolder(partial); err != nil {
			return sum, fmt.Errorf("copy %s: %w; remove what an interrupted copy has left", tree.Dir(), err)
		}
		if sum, err = copyOnce(ctx, tree, partial); err == nil {
			break
		}
		if removed := os.RemoveAll(partial); removed != nil || !errors.Is(err, errChanged) {
			return sum, errors.Join(fmt.Errorf("copy %s: %w", tree.Dir(), err), removed)
		}
	}
	if err == nil {
		err = appear(partial, to)
	}
	if err != nil {
		return sum, fmt.Errorf("copy %s: %w", tree.Dir(), err)
	}
	return sum, nil
}

// appear gives a complete copy its name, durably.
func appear(partial, to string) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) { // it is empty
		return err
	}
	parent, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	err = files.RenameFree(parent, filepath.Base(partial), filepath.Base(to))
	if err = errors.Join(err, parent.Close()); err != nil {
		return err
	}
	return files.SyncFolder(filepath.Dir(to))
}

// use is what storage.json says of the use of the journal.
type use struct {
	Version int    `json:"version"`
	LSN     uint64 `json:"lsn"`
}

// copyOnce makes a copy, synced. The error is errChanged if a crash could not have left such a storage.
func copyOnce(ctx context.Context, tree *statefs.Tree, to string) (sum Summary, err error) {
	c := &copier{ctx: ctx, tree: tree, sum: &sum}
	if c.from, err = os.OpenRoot(tree.Dir()); err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, c.from.Close()) }()
	if c.to, err = os.OpenRoot(to); err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, c.to.Close()) }()
	before, _, err := c.readUse()
	if err != nil {
		return sum, err
	}
	if before.Version == statefs.JournalLayout {
		err = c.copyBesideJournal(filepath.Join(to, journalDir))
	} else {
		err = c.copyFiles()
	}
	if err != nil {
		return sum, err
	}
	after, numbers, err := c.readUse()
	if err == nil && after != before {
		err = errChanged
	}
	if err == nil && numbers != nil {
		err = c.writeNumbers(numbers)
	}
	if err != nil {
		return sum, err
	}
	return sum, syncAll(to)
}

// readUse reads storage.json. Its content is nil if it is missing.
func (c *copier) readUse() (u use, content []byte, err error) {
	content, err = c.from.ReadFile(storageFile)
	if errors.Is(err, fs.ErrNotExist) {
		return u, nil, nil
	}
	_ = json.Unmarshal(content, &u) // a damaged one is copied as it is; a start continues above the highest number
	return u, content, err
}

// writeNumbers writes storage.json.
func (c *copier) writeNumbers(content []byte) error {
	info, err := c.from.Lstat(storageFile)
	if err == nil {
		err = files.WriteNew(filepath.Join(c.to.Name(), storageFile), content)
	}
	if err == nil {
		err = c.copyMode(storageFile, info)
	}
	return err
}

// copyBesideJournal copies the files, and the journal of the whole time that this takes.
func (c *copier) copyBesideJournal(folder string) error {
	if err := files.MakeFolder(folder); err != nil {
		return err
	}
	mirror, err := journal.NewMirror(filepath.Join(c.from.Name(), journalDir), folder)
	if err != nil {
		return err
	}
	err = mirror.Update()
	if err == nil {
		_, err = journal.Read(folder, func(*journal.Frame) error { return nil }) // no gap before the first file is read
	}
	if err == nil {
		stop := follow(c.ctx, mirror)
		err = c.copyFiles()
		err = errors.Join(err, stop())
	}
	if err == nil {
		err = mirror.Update()
	}
	if err = errors.Join(err, mirror.Close()); err != nil {
		return asChanged(err)
	}
	changed := make(map[statefs.ID]bool)
	if _, err = journal.Read(folder, func(f *journal.Frame) error { return note(changed, f) }); err != nil {
		return asChanged(err)
	}
	// The records of the journal are newer than the other files, and a log must not end before its record says.
	for id := range changed {
		if err := c.copyOthers(id); err != nil {
			return err
		}
	}
	return nil
}

// asChanged makes errChanged of a gap in the journal.
func asChanged(err error) error {
	if _, is := errors.AsType[*journal.DamageError](err); is {
		return fmt.Errorf("%w (%w)", errChanged, err)
	}
	return err
}

// note adds the operations of a frame.
func note(changed map[statefs.ID]bool, f *journal.Frame) error {
	for _, entry := range f.Entries {
		var line struct {
			ID statefs.ID `json:"id"`
		}
		if err := json.Unmarshal(entry, &line); err != nil {
			return fmt.Errorf("read the journal: %w", err)
		}
		if !line.ID.IsZero() {
			changed[line.ID] = true
		}
	}
	return nil
}

// follow updates a mirror until the returned function is called, which returns the first error.
func follow(ctx context.Context, mirror *journal.Mirror) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		tick := time.NewTicker(updateEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-tick.C:
				if err := mirror.Update(); err != nil {
					ended <- err
					return
				}
			}
		}
	}()
	return func() error {
		cancel()
		return <-ended
	}
}

// isLeftOut reports whether a name of a storage is not for a copy: files of its processes, caches, and what is copied
// in a place of its own.
func isLeftOut(name string) bool {
	switch name {
	case "tmp", journalDir, storageFile, "jobdir.lock", "live.list", "records.list":
		return true
	case "outbox.list": // with it a start takes a delivery that was made in the meantime for an entry removed by a person
		return true
	}
	return strings.HasPrefix(name, "keeper-") || strings.HasPrefix(name, "history.db") // an index is not copied while it is written
}

// copyFiles copies all files but storage.json and the journal, in the order of the package comment.
func (c *copier) copyFiles() error {
	// live.list first: an operation that it has and that has no marker counts as removed by a person.
	if err := c.copyFile("live.list"); err != nil {
		return err
	}
	for _, name := range []string{"jobs", "taken", "outbox"} {
		if err := c.copyTree(name); err != nil {
			return err
		}
	}
	if err := c.copyOperations(); err != nil {
		return err
	}
	entries, err := files.ReadFolder(c.from.Name())
	if err != nil {
		return err
	}
	for _, entry := range entries {
		switch name := entry.Name(); {
		case isLeftOut(name), name == "jobs", name == "taken", name == "operations":
		default: // also outbox/ again: deliveries of operations that have ended since
			if err := c.copyTree(name); err != nil {
				return err
			}
		}
	}
	return nil
}
