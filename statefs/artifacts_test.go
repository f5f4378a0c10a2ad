package statefs

import (
	"os"
	"path/filepath"
	"testing"
)

// The crash points of internal/torture check the durability; this test checks the inputs that
// SyncArtifacts must tolerate.
func TestSyncArtifacts(t *testing.T) {
	t.Parallel()
	o := ownTree(t, openTree(t, t.TempDir(), Options{}))
	rec := submit(t, o.Tree)
	check(t, o.Output.SyncArtifacts(rec.ID)) // there is no folder
	dir := o.ArtifactsPath(rec.ID)
	check(t, os.MkdirAll(filepath.Join(dir, "sub", "empty"), 0o750))
	check(t, os.WriteFile(filepath.Join(dir, "sub", "file"), []byte("text"), 0o640))
	check(t, os.WriteFile(filepath.Join(dir, "shut"), []byte("text"), 0))
	check(t, os.Symlink("/nowhere", filepath.Join(dir, "link")))
	check(t, o.Output.SyncArtifacts(rec.ID))
}
