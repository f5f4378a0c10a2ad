package statefs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// FolderGoneError says that a folder of the storage was removed or replaced while its daemon ran. The daemon has it open and would go on
// writing into what nobody can see, so it ends; a start makes the folder again.
type FolderGoneError struct{ Path string }

func (e *FolderGoneError) Error() string {
	return fmt.Sprintf("%s was removed or replaced while the daemon ran: put it back, or start the daemon again, which makes a new one; running commands go on meanwhile", e.Path)
}

// Unwrap says that the folder is not there.
func (*FolderGoneError) Unwrap() error { return fs.ErrNotExist }

// KeepFolders makes the folders of the storage again that were removed and that nothing is kept open of, and returns their names. The error is a
// *FolderGoneError for the others. Whether jobs/ is the folder that is watched is for the watch to say.
func (o *Owner) KeepFolders() (made []string, err error) {
	for _, held := range []struct {
		name   string
		folder *syncFolder
	}{{operationsDir, o.opsSync}, {takenDir, o.takenSync}, {outboxDir, o.outboxSync}} {
		path := filepath.Join(o.dir, held.name)
		inHand, err := held.folder.f.Stat()
		if err != nil {
			return made, fmt.Errorf("look at %s: %w", path, err)
		}
		if named, err := os.Lstat(path); err != nil || !os.SameFile(inHand, named) {
			return made, &FolderGoneError{path}
		}
	}
	for _, name := range []string{newDir, lanesDir, schedulesDir, definitionsDir, corruptDir, keysDir, tmpDir} {
		path := filepath.Join(o.dir, name)
		if _, err := os.Lstat(path); err == nil {
			continue // whether it is a folder shows when it is used
		}
		if err := makeFolder(path); err != nil {
			return made, fmt.Errorf("make %s again: %w", path, err)
		}
		made = append(made, name)
		if name == definitionsDir {
			o.kept.Clear() // the next submit keeps its definition again
		}
	}
	o.forgetDays()
	return made, nil
}

// forgetDays closes the folders of days that were removed or replaced: the next submit makes its own again.
func (t *Tree) forgetDays() {
	t.daysMu.Lock()
	defer t.daysMu.Unlock()
	for day, folder := range t.days {
		inHand, err := folder.f.Stat()
		named, namedErr := os.Lstat(filepath.Join(t.dir, operationsDir, day))
		if err != nil || namedErr != nil || !os.SameFile(inHand, named) {
			delete(t.days, day) // whoever still holds it needs it open; the garbage collector closes it
		}
	}
}
