package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// Removing the marker of a trailing operation while no daemon runs ends its optional steps, as it
// does under a daemon; the result stays.
func TestTrailingMarkerThatIsRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t, sideJobs, sideHandlers)
	var ids []statefs.ID
	for range 3 {
		id := b.submit("handled_beside", `{}`)
		b.awaitStep(id, "aside", steps.Running)
		b.artifact(id, "go")
		b.awaitState(id, statefs.Trailing)
		ids = append(ids, id)
	}
	must(t, b.stop())
	before, err := b.tree.ReadRecord(ids[0])
	must(t, err)
	must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(ids[0], statefs.Trailing))))
	b.start()
	rec := b.awaitEnd(ids[0])
	if rec.Trailing || rec.Status != statefs.Completed || rec.FinishedSeq != before.FinishedSeq ||
		string(rec.Footer) != string(before.Footer) || step(t, rec, "aside").Status != steps.Pending {
		t.Errorf("%s, trailing %t: %s", rec.Status, rec.Trailing, statuses(rec))
	}
	must(t, b.stop())
	for _, id := range ids[1:] { // all markers at once: the folder was emptied, which cancels nothing
		must(t, os.Remove(filepath.Join(b.tree.JobsDir(), statefs.MarkerName(id, statefs.Trailing))))
	}
	b.start()
	for _, id := range ids[1:] {
		b.awaitState(id, statefs.Trailing)
		b.artifact(id, "on")
		if rec := b.awaitEnd(id); rec.Trailing || step(t, rec, "aside").Status != steps.Succeeded {
			t.Errorf("trailing %t: %s", rec.Trailing, statuses(rec))
		}
	}
}
