package submit

import (
	"errors"
	"testing"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// An operation that waits for a person does not restart beside an equal live operation, however that one was
// made, unless the live operation comes after it.
func TestRestartUnlessDuplicate(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	submit := func(job string, change ...func(*Request)) *statefs.Record {
		t.Helper()
		made, err := d.in.Submit(t.Context(), d.request(job, `{"a":"x"}`, change...))
		d.must(err)
		return made[0].Record
	}
	begun := errors.New("it begins")
	begin := func() error { return begun }
	for _, job := range []string{"return", "reject", "next", "off"} {
		onHit := d.defs[job].Unique.OnHit
		first := submit(job)
		d.must(d.owner.Move(first.ID, statefs.Queued, statefs.FailedManual))
		if other, err := d.in.RestartUnlessDuplicate(first, onHit, begin); !errors.Is(err, begun) || other.Record != nil {
			t.Errorf("%s alone: %v, %v", job, other.Record, err)
		}
		fresh := func(r *Request) { r.ForceNew = true }
		after := submit(job, fresh, func(r *Request) { r.Options.After = []statefs.ID{first.ID} })
		submit(job, fresh, func(r *Request) { r.Options.After = []statefs.ID{after.ID} })
		if other, err := d.in.RestartUnlessDuplicate(first, onHit, begin); !errors.Is(err, begun) || other.Record != nil {
			t.Errorf("%s with those that come after it: %v, %v", job, other.Record, err)
		}
		equal := submit(job, fresh)
		other, err := d.in.RestartUnlessDuplicate(first, onHit, begin)
		switch {
		case onHit == catalog.HitOff:
			if !errors.Is(err, begun) {
				t.Errorf("off: %v, %v", other.Record, err)
			}
		case err != nil || other.Record == nil || other.Record.ID != equal.ID:
			t.Errorf("%s: %v, %v, want %s", job, other.Record, err, equal.ID)
		}
	}
}
