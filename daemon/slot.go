package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/schedule"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/submit"
)

// byScheduleName is who submits by a schedule, as the record says.
const byScheduleName = "schedule"

// slotKey names the start of a job at a slot: submitted twice it is one operation.
func slotKey(job string, slot time.Time) string {
	return "schedule " + job + " " + slot.UTC().Format(time.RFC3339)
}

// start submits the operation of a slot, or says why there is none. last is the operation that the schedule started before. It returns the
// operation that is the last one then.
func (s *scheduler) start(ctx context.Context, def *catalog.Definition, last string, slot time.Time, overlap schedule.Overlap) (operation, skipped string, err error) {
	options := submit.Options{IdempotencyKey: slotKey(def.Address(), slot)}
	before, state, err := s.underWay(last, options.IdempotencyKey)
	if err != nil {
		return last, "", err
	}
	if state.Live() {
		switch overlap {
		case schedule.OverlapSkip:
			skipped = fmt.Sprintf("operation %s is %s", before, state)
			s.d.logger.Info("slot passed over", "job", def.Address(), "slot", slot.Format(time.RFC3339), "reason", skipped)
			return last, skipped, nil
		case schedule.OverlapCancel:
			if err := s.d.owner.Request(ctx, before, statefs.Cancel, nil); err != nil && !errors.Is(err, statefs.ErrNotLive) {
				return last, "", err
			}
		case schedule.OverlapQueue:
		}
		options.After, options.Require = []statefs.ID{before}, statefs.RequireEnd
	}
	if delay := schedule.Jitter(def.Address(), slot, def.Schedule.Jitter); delay > 0 {
		at := slot.Add(delay)
		options.NotBefore = &at
	}
	outcomes, err := s.intake.Submit(ctx, submit.Request{
		Definition: def, Params: def.Schedule.Params, Options: options, By: byScheduleName, Fresh: true,
	})
	if err != nil {
		return last, "", err
	}
	id := outcomes[0].Record.ID
	s.d.logger.Info("started by schedule", "job", def.Address(), "slot", slot.Format(time.RFC3339), "id", id, "new", outcomes[0].New)
	return id.String(), "", nil
}

// underWay returns the operation that a schedule started last and its state, "" when it has ended or is the one that is to be started.
func (s *scheduler) underWay(last, key string) (statefs.ID, statefs.State, error) {
	id, err := statefs.ParseID(last)
	if err != nil {
		return statefs.ID{}, "", nil //nolint:nilerr // it has started none
	}
	state, err := s.d.owner.State(id)
	if errors.Is(err, statefs.ErrNotLive) {
		return id, "", nil
	}
	if err != nil {
		return id, "", err
	}
	if rec, err := s.d.owner.ReadRecord(id); err == nil && rec.IdempotencyKey == key {
		return id, "", nil
	}
	return id, state, nil
}
