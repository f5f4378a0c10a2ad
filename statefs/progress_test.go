package statefs

import (
	"testing"
	"time"
)

// What the file knows newer than the record counts, and what the record knows newer stays.
func TestFreshen(t *testing.T) {
	t.Parallel()
	o := own(t)
	rec := submit(t, o.Tree)
	o.Freshen(rec)
	if rec.Progress != nil || rec.HeartbeatAt != nil {
		t.Errorf("without a file: %+v, %v", rec.Progress, rec.HeartbeatAt)
	}
	check(t, o.WriteProgress(rec.ID, Progress{Done: 3, At: testTime}))
	o.Freshen(rec)
	if rec.Progress == nil || rec.Progress.Done != 3 || !rec.HeartbeatAt.Equal(testTime) {
		t.Errorf("the file is newer: %+v, %v", rec.Progress, rec.HeartbeatAt)
	}
	later := testTime.Add(time.Second)
	rec.Progress, rec.HeartbeatAt = &Progress{Done: 4, At: later}, &later
	if o.Freshen(rec); rec.Progress.Done != 4 || !rec.HeartbeatAt.Equal(later) {
		t.Errorf("the record is newer: %+v, %v", rec.Progress, rec.HeartbeatAt)
	}
	check(t, o.WriteProgress(rec.ID, Progress{Done: 5, At: later.Add(time.Second)}))
	rec.Status = Completed
	if o.Freshen(rec); rec.Progress.Done != 4 {
		t.Errorf("it has ended: %+v", rec.Progress)
	}
}
