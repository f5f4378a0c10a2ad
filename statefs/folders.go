package statefs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jobdir/jobdir/statefs/files"
)

// FolderGoneError reports that a folder of the storage was removed or replaced while its daemon
// ran. The daemon has the old folder open and would write where no other program can see it, so it
// ends. The next start creates the folder again.
type FolderGoneError struct{ Path string }

func (e *FolderGoneError) Error() string {
	return fmt.Sprintf("%s was removed or replaced while the daemon ran: put it back, or start the daemon again, which makes a new one; running commands go on meanwhile", e.Path)
}

// Unwrap returns fs.ErrNotExist.
func (*FolderGoneError) Unwrap() error { return fs.ErrNotExist }

// RestoreFolders creates removed folders of the storage that the daemon does not keep open, and
// returns their names. It moves files in the place of folders to corrupt/. For the open ones the
// error is a *FolderGoneError. The watch checks jobs/.
func (o *Owner) RestoreFolders() (made []string, err error) {
	for _, held := range []struct {
		name   string
		folder *files.Folder
	}{{operationsDir, o.opsSync}, {takenDir, o.takenSync}, {outboxDir, o.Outbox.sync}} {
		path := filepath.Join(o.dir, held.name)
		switch is, err := held.folder.Is(path); {
		case err != nil:
			return made, fmt.Errorf("look at %s: %w", path, err)
		case !is:
			return made, &FolderGoneError{path}
		}
	}
	for _, name := range []string{newDir, lanesDir, schedulesDir, definitionsDir, corruptDir, keysDir, tmpDir} {
		path := filepath.Join(o.dir, name)
		_, missing := os.Lstat(path)
		if err := o.corrupt.makeFolder(name); err != nil {
			return made, fmt.Errorf("make %s again: %w", path, err)
		}
		if missing == nil {
			continue
		}
		made = append(made, name)
		if name == definitionsDir {
			o.storedDefinitions.Clear() // so that the next submit stores its definition again
		}
	}
	err = o.corrupt.clearFolders()
	o.forgetDays()
	return made, err
}

// forgetDays forgets the open folders of days that were removed or replaced, so that the next
// submit creates a new one.
func (t *Tree) forgetDays() {
	t.daysMu.Lock()
	defer t.daysMu.Unlock()
	for day, folder := range t.days {
		if is, err := folder.Is(filepath.Join(t.dir, operationsDir, day)); err != nil || !is {
			delete(t.days, day) // other goroutines may still use it; the garbage collector closes it
		}
	}
}
