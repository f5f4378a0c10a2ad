package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// While the markers of a list are made there is a file for it in taken/, under the ID of its first operation: a start that finds the file
// makes the markers that are missing, and one that does not takes a missing marker for a removed one. The file comes after all records and
// before the first marker. It is not synced: a file system that loses it in a power cut has lost the later names too.
const batchSuffix = ".batch"

func (t *Tree) openBatch(first ID) error {
	return t.files.create(path.Join(takenDir, first.text+batchSuffix), nil)
}

// closeBatch forgets a list whose markers are there. What stays of one that cannot be removed goes at the next start.
func (t *Tree) closeBatch(recs []*Record) {
	if len(recs) > 1 {
		_ = t.root.Remove(path.Join(takenDir, recs[0].ID.text+batchSuffix))
	}
}

// Batches returns the lists whose submit was cut off while their markers were made, by the ID of their first operation.
func (o *Owner) Batches() (map[ID]bool, error) {
	entries, err := fs.ReadDir(o.root.FS(), takenDir)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", takenDir, err)
	}
	cut := make(map[ID]bool)
	for _, entry := range entries {
		if id, ok := batchOf(entry); ok {
			cut[id] = true
		}
	}
	return cut, nil
}

// ForgetBatches removes what says that lists were cut off, once their markers are there and durable.
func (o *Owner) ForgetBatches(cut map[ID]bool) error {
	for id := range cut {
		if err := os.Remove(filepath.Join(o.dir, takenDir, id.text+batchSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget the list of %s: %w", id, err)
		}
	}
	return nil
}

func batchOf(entry fs.DirEntry) (ID, bool) {
	text, ok := strings.CutSuffix(entry.Name(), batchSuffix)
	if !ok || !entry.Type().IsRegular() {
		return ID{}, false
	}
	id, err := ParseID(text)
	return id, err == nil
}
