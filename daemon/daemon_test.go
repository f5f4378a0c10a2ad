package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jobdir/jobdir/daemon/work"
	"github.com/jobdir/jobdir/statefs"
)

const handlerJobs = `
group: test
name: wait
handler: wait
---
group: test
name: count
handler: count
params:
  n: {type: integer, default: 3}
`

// waitHandler runs until it is cancelled. When paused, it stops at its checkpoint.
func waitHandler(ctx context.Context, op *work.Op) error {
	return op.Sleep(time.Hour)
}

func countHandler(ctx context.Context, op *work.Op) error {
	for i := 1; i <= 3; i++ {
		if err := op.Checkpoint(); err != nil {
			return err
		}
		op.Item(i, 3, string(rune('a'+i-1)))
		if i == 2 {
			op.Fail(errors.New("odd one out"))
			continue
		}
		op.OK(slog.Int64("size_bytes", int64(i)))
	}
	return op.Result("answer", 42)
}

var testHandlers = work.Handlers{"wait": {Run: waitHandler}, "count": {Run: countHandler}}

func TestHandlerRunsToItsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	id := b.submit("count", `{}`)
	rec := b.awaitEnd(id)
	b.wantLog(id, "[ 1 / 3 ] Processing 'a'...", "  OK.", "[ 2 / 3 ] Processing 'b'...", "  FAIL: odd one out",
		"[ 3 / 3 ] Processing 'c'...", "  OK.")
	want := `{"result":"partial","state":"completed","total":3,"processed":2,"failed":1,"answer":42,` +
		`"processed_files":[{"filename":"a","size_bytes":1},{"filename":"c","size_bytes":3}],` +
		`"failed_files":[{"filename":"b","error":"odd one out"}]}`
	if string(rec.Footer) != want {
		t.Errorf("footer\n%s\nwant\n%s", rec.Footer, want)
	}
	if rec.Status != statefs.Completed || rec.Result != statefs.Partial || rec.Run != 1 || rec.Attempts != 1 {
		t.Errorf("record: %+v", rec)
	}
	var states []statefs.State
	for _, tr := range rec.Transitions {
		states = append(states, tr.To)
	}
	got, _ := json.Marshal(states)
	if string(got) != `["queued","running","completed"]` {
		t.Errorf("transitions %s", got)
	}
}

func TestPauseResumeCancelByTouch(t *testing.T) {
	t.Parallel()
	b := setup(t, handlerJobs, testHandlers)
	id := b.submit("wait", `{}`)
	b.awaitState(id, statefs.Running)
	b.touch(id, statefs.Pause)
	b.awaitState(id, statefs.Paused)
	b.touch(id, statefs.Resume)
	b.awaitState(id, statefs.Running)
	b.touch(id, statefs.Pause)
	b.awaitState(id, statefs.Paused)
	b.touch(id, statefs.Cancel)
	rec := b.awaitEnd(id)
	if rec.Status != statefs.Cancelled || rec.Result != statefs.CancelledResult {
		t.Errorf("status %s, result %s", rec.Status, rec.Result)
	}
	b.wantLog(id, linePause, lineResume, linePause, lineCancelPaused)
}
