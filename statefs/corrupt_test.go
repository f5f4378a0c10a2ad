package statefs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestQuarantineOfARecord: an unreadable record keeps its name until another one replaces it,
// because a crash in between must not leave a marker without a record.
func TestQuarantineOfARecord(t *testing.T) {
	t.Parallel()
	o := own(t)
	rec := submit(t, o.Tree)
	file := recordPath(o.Tree, rec.ID)
	check(t, os.WriteFile(file, []byte("{torn"), 0o640))
	check(t, o.QuarantineRecord(rec.ID, "it is torn"))
	if _, err := o.ReadRecord(rec.ID); !isCorrupt(err) {
		t.Errorf("the record has lost its name: %v", err)
	}
	check(t, o.WriteRecord(rec))
	if _, err := o.ReadRecord(rec.ID); err != nil {
		t.Error(err)
	}
	kept, err := filepath.Glob(filepath.Join(o.Dir(), corruptDir, "*.json"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("%v, %v", kept, err)
	}
	if data, err := os.ReadFile(kept[0]); err != nil || string(data) != "{torn" {
		t.Errorf("kept: %q, %v", data, err)
	}
	if reasons, _ := filepath.Glob(kept[0] + ".reason"); len(reasons) != 1 {
		t.Error("there is no reason")
	}
	// A folder with its name is moved as a whole.
	check(t, os.Remove(file))
	check(t, os.Mkdir(file, 0o750))
	check(t, o.QuarantineRecord(rec.ID, "it is a folder"))
	check(t, o.WriteRecord(rec))
	// If there is no record, there is nothing to do.
	check(t, os.Remove(file))
	check(t, o.QuarantineRecord(rec.ID, "it is gone"))
}

func isCorrupt(err error) bool {
	_, is := errors.AsType[*CorruptError](err)
	return is
}
