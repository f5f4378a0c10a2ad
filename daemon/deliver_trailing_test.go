package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// The result is delivered when the required steps are done. The record keeps that outcome while the
// optional steps continue and end.
func TestDeliverWhileOptionalStepsRun(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	b := setup(t, `
group: test
name: made
steps:
  - {name: main, run: [echo, main]}
  - {name: aside, needs: [main], optional: true, run: [sh, -c, "until test -e $JOBDIR_ARTIFACTS/go; do sleep 0.02; done"]}
deliver:
  - folder: {path: "`+out+`"}
`, nil)
	id := b.submit("made", `{}`)
	rec := b.delivered(id, statefs.DeliveryDelivered)
	if !rec.Trailing || step(t, rec, "main").Status != steps.Succeeded {
		t.Errorf("trailing %t, %s", rec.Trailing, statuses(rec))
	}
	if data, err := os.ReadFile(filepath.Join(out, id.String()+".json")); err != nil ||
		string(data) != string(rec.Footer) {
		t.Errorf("delivered %q, %v", data, err)
	}
	b.awaitStep(id, "aside", steps.Running)
	b.artifact(id, "go")
	if rec := b.awaitEnd(id); rec.Trailing || len(rec.Deliveries) != 1 ||
		rec.Deliveries[0].State != statefs.DeliveryDelivered || step(t, rec, "aside").Status != steps.Succeeded {
		t.Errorf("%+v %s", rec.Deliveries, statuses(rec))
	}
	if left := b.outbox(); len(left) != 0 {
		t.Errorf("left in the outbox: %v", left)
	}
}
