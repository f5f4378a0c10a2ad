package statefs

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"testing"
)

// TestRetryOfWhatIsGone: a retry of an operation that is being deleted is refused: its items may be
// gone already, and would silently be done again.
func TestRetryOfWhatIsGone(t *testing.T) {
	t.Parallel()
	o := own(t)
	old := end(t, o)
	check(t, os.WriteFile(path.Join(o.Dir(), dayFile(old.ID, ".items.ndjson")),
		[]byte(`{"item":1,"ok":true}`+"\n"), 0o640))
	again, err := o.Submit(t.Context(), Submission{Group: "g", Job: "j", RetryOf: &old.ID})
	check(t, err)
	if data, err := os.ReadFile(path.Join(o.Dir(), dayFile(again.ID, ".items.ndjson"))); err != nil || len(data) == 0 {
		t.Errorf("inherited %q, %v", data, err)
	}
	check(t, os.Rename(path.Join(o.Dir(), dayFile(old.ID, ".json")), path.Join(o.Dir(), dayFile(old.ID, deletedSuffix))))
	if _, err := o.Submit(t.Context(), Submission{
		Group: "g", Job: "j",
		RetryOf: &old.ID,
	}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is being deleted: %v", err)
	}
	listing, err := o.List()
	check(t, err)
	files, err := o.ListDay(again.ID.Day())
	check(t, err)
	if len(listing.Markers) != 1 || len(files.Records) != 1 || files.Others {
		t.Errorf("something is left: %+v, %+v", listing.Markers, files)
	}
}
