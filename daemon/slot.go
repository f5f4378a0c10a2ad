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

// firing are slots that are being fired. It is written down before the first of them is submitted.
type firing struct {
	At      time.Time        `json:"at"`
	Slots   []time.Time      `json:"slots"`
	Overlap schedule.Overlap `json:"overlap"`
	// Handled is what is dealt with once they are; none when the schedule means other times since.
	Handled schedule.Handled `json:"handled"`
}

// fireSlots starts the operations of the slots that are being fired, and writes down that they were dealt with.
func (s *scheduler) fireSlots(ctx context.Context, job *scheduled) error {
	kept := job.kept
	for _, slot := range kept.Firing.Slots {
		operation, skipped, err := s.start(ctx, job.def, kept.Operation, slot, kept.Firing.Overlap)
		if err != nil {
			return err
		}
		kept.Slot, kept.Operation, kept.Skipped = &slot, operation, skipped
	}
	kept.Handled, kept.Firing = kept.Firing.Handled, nil
	return s.note(job, kept)
}

// resume deals with a firing that something cut short, here or in a daemon that has died: what was submitted stands, the operation before it is
// cancelled where that is still to be done, and slots that were not submitted are due as any others.
func (s *scheduler) resume(ctx context.Context, job *scheduled) error {
	kept := job.kept
	for _, slot := range kept.Firing.Slots {
		made, err := s.intake.Made(ctx, slotKey(job.def.Address(), slot), kept.Firing.At)
		if err != nil {
			return err
		}
		if made.Record == nil {
			break
		}
		id := made.Record.ID.String()
		if before, err := statefs.ParseID(kept.Operation); err == nil && kept.Firing.Overlap == schedule.OverlapCancel && kept.Operation != id {
			if err := s.cancel(ctx, before); err != nil {
				return err
			}
		}
		kept.Slot, kept.Operation, kept.Skipped = &slot, id, ""
		if handled, ok := kept.Firing.Handled.Until(slot); ok {
			kept.Handled = handled
		}
	}
	kept.Firing = nil
	return s.note(job, kept)
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
		if overlap == schedule.OverlapSkip {
			skipped = fmt.Sprintf("operation %s is %s", before, state)
			s.d.logger.Info("slot passed over", "job", def.Address(), "slot", slot.Format(time.RFC3339), "reason", skipped)
			return last, skipped, nil
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
	// Only now: whoever is cancelled has a successor, also after a crash.
	if state.Live() && overlap == schedule.OverlapCancel {
		if err := s.cancel(ctx, before); err != nil {
			return last, "", err
		}
	}
	id := outcomes[0].Record.ID
	s.d.logger.Info("started by schedule", "job", def.Address(), "slot", slot.Format(time.RFC3339), "id", id, "new", outcomes[0].New)
	return id.String(), "", nil
}

// cancel asks for the end of an operation; one that has ended is left alone.
func (s *scheduler) cancel(ctx context.Context, id statefs.ID) error {
	if err := s.d.owner.Request(ctx, id, statefs.Cancel, nil); !errors.Is(err, statefs.ErrNotLive) {
		return err
	}
	return nil
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
