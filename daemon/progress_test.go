package daemon

import (
	"context"
	"testing"

	"github.com/jobdir/jobdir/daemon/work"
)

// A new phase is written to the record at once; progress within a phase is not.
func TestPhaseIsInTheRecord(t *testing.T) {
	t.Parallel()
	step := make(chan struct{})
	b := setup(t, "{group: test, name: phases, handler: phases}",
		work.Handlers{"phases": {Run: func(_ context.Context, op *work.Op) error {
			for i, phase := range []string{"reading", "", "writing"} {
				op.Progress(int64(i), 3, phase)
				<-step
			}
			return nil
		}}})
	id := b.submit("phases", `{}`)
	phase := func(want string, done int64) {
		t.Helper()
		b.await("the phase is "+want, func() bool {
			rec, err := b.tree.ReadRecord(id)
			return err == nil && rec.Phase == want && rec.Progress != nil && rec.Progress.Done == done
		})
		step <- struct{}{}
	}
	phase("reading", 0)
	step <- struct{}{}
	phase("writing", 2)
	if rec := b.awaitEnd(id); rec.Phase != "completed" || rec.Progress.Phase != "writing" || rec.HeartbeatAt == nil {
		t.Errorf("phase %q, heartbeat %v", rec.Phase, rec.HeartbeatAt)
	}
}
