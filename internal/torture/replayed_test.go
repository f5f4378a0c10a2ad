package torture

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/journal"
)

// journaled reports whether the daemons of these tests commit by the journal: then record files follow their changes,
// and after a crash the next start writes what the files lack.
func journaled() bool { return os.Getenv("JOBDIR_COMMIT") != string(statefs.CommitFiles) }

// left is the last line of each operation that a crash has left in the journal. It is read without package statefs.
func left(dir string) (map[statefs.ID][]byte, error) {
	lines := make(map[statefs.ID][]byte)
	data, err := os.ReadFile(filepath.Join(dir, "storage.json"))
	var storage struct {
		Version int `json:"version"`
	}
	if err != nil || json.Unmarshal(data, &storage) != nil || storage.Version != 2 {
		return lines, nil // the daemon was stopped in order, or commits by files
	}
	r, err := journal.NewReader(filepath.Join(dir, "journal"))
	if errors.Is(err, fs.ErrNotExist) {
		return lines, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // opened for reading
	for frame, err := range r.Frames() {
		if err != nil {
			return nil, err
		}
		for _, line := range frame.Entries {
			var rec struct {
				ID      statefs.ID `json:"id"`
				Deleted statefs.ID `json:"deleted"`
			}
			if err := json.Unmarshal(line, &rec); err != nil {
				return nil, err
			}
			delete(lines, rec.Deleted)
			if rec.ID != (statefs.ID{}) {
				lines[rec.ID] = line
			}
		}
	}
	return lines, nil
}

// recordOf returns the record of an operation as the next start will have it.
func recordOf(dir string, id statefs.ID, lines map[statefs.ID][]byte) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(dir, "operations", id.Day(), id.String()+".json"))
	if last := lines[id]; numberOf(last) > numberOf(data) {
		return last, nil
	}
	return data, err
}

// numberOf returns the number of the change that a record has, 0 if it is torn or has none.
func numberOf(record []byte) uint64 {
	var rec struct {
		LSN uint64 `json:"lsn"`
	}
	if json.Unmarshal(record, &rec) != nil {
		return 0
	}
	return rec.LSN
}

// readRecord reads the record of an operation while a daemon runs. If record files follow, it waits until the file is
// there and is as wanted.
func readRecord(tree *statefs.Tree, id statefs.ID, wanted func(*statefs.Record) bool) (rec *statefs.Record, err error) {
	if !journaled() {
		return tree.ReadRecord(id)
	}
	_ = eventually(func() error { // the last result counts
		if rec, err = tree.ReadRecord(id); err == nil && !wanted(rec) {
			return errNotYet
		}
		return err
	})
	return rec, err
}

var errNotYet = errors.New("the file of the record is not as new as the change")

func anyRecord(*statefs.Record) bool { return true }

func endedRecord(rec *statefs.Record) bool { return rec.Status.Terminal() }

// awaitFile waits until the file of a record is there, and says something.
func awaitFile(t *testing.T, tree *statefs.Tree, id statefs.ID, says string) {
	t.Helper()
	until(t, "the file of the record of "+id.String()+" says "+says, func() bool {
		data, err := os.ReadFile(tree.RecordPath(id))
		return err == nil && bytes.Contains(data, []byte(says))
	})
}
