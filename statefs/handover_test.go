package statefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestReadPublishedEqualsReadRecord: the owner gets a published record once, equal to the one on
// disk; all other reads are from disk.
func TestReadPublishedEqualsReadRecord(t *testing.T) {
	t.Parallel()
	tree := openTree(t, t.TempDir(), Options{})
	before := submit(t, tree)
	owner := ownTree(t, tree)
	if len(tree.handover.records) != 0 {
		t.Error("a record is kept that no daemon will ask for")
	}
	rec := submit(t, tree)
	handed, isNew, err := owner.ReadPublished(rec.ID)
	check(t, err)
	if !isNew {
		t.Error("a record that this process has just published is not new")
	}
	if handed == rec {
		t.Error("the record of the submit and that of the daemon are one")
	}
	read, err := tree.ReadRecord(rec.ID)
	check(t, err)
	if got, want := asJSON(t, handed), asJSON(t, read); got != want {
		t.Errorf("handed over %s, on the disk is %s", got, want)
	}
	handed.transit(Queued, Running, CauseStart, handed.CreatedAt)
	if len(rec.Transitions) != 1 {
		t.Error("the daemon changes the record of the submit")
	}
	for _, id := range []ID{before.ID, rec.ID} { // the first was never handed over, the second only once
		check(t, os.Remove(filepath.Join(tree.Dir(), "operations", id.Day(), id.String()+".json")))
		if _, isNew, err := owner.ReadPublished(id); isNew || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want what is on the disk", id, err)
		}
	}
}

// TestHandoverIsBounded: a record that is never read does not stay forever.
func TestHandoverIsBounded(t *testing.T) {
	t.Parallel()
	var h handover
	h.reset(true)
	for n := range uint64(3 * maxHandedOver) {
		id, err := MakeID("test-job", testTime, 1, n+1)
		check(t, err)
		h.put(&Record{ID: id})
		if len(h.records) > maxHandedOver {
			t.Fatalf("%d records are kept", len(h.records))
		}
	}
}

func asJSON(t *testing.T, rec *Record) string {
	t.Helper()
	data, err := marshalRecord(rec)
	check(t, err)
	return string(data)
}
