package trigger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/catalog/schedule"
	"github.com/jobdir/jobdir/daemon/submit"
	"github.com/jobdir/jobdir/statefs"
)

// byScheduleName is the requester in the record of an operation that a schedule submits.
const byScheduleName = "schedule"

// slotKey is the idempotency key of a job at a slot: two submits with it are one operation.
func slotKey(job string, slot time.Time) string {
	return "schedule " + job + " " + slot.UTC().Format(time.RFC3339)
}

// firing holds slots that are being fired. It is recorded before the first of them is submitted.
type firing struct {
	At      time.Time        `json:"at"`
	Slots   []time.Time      `json:"slots"`
	Overlap schedule.Overlap `json:"overlap"`
	// Handled is the handled time once they are submitted; nil if the schedule has changed since.
	Handled schedule.Handled `json:"handled"`
}

// fireSlots starts the operations of the slots that are being fired, and records the slots as
// handled.
func (s *scheduler) fireSlots(ctx context.Context, job *scheduled) error {
	kept := job.state
	for _, slot := range kept.Firing.Slots {
		operation, skipped, err := s.start(ctx, job.def, kept.Operation, slot, kept.Firing.Overlap)
		if err != nil {
			return err
		}
		kept.Slot, kept.Operation, kept.Skipped = &slot, operation, skipped
	}
	kept.Handled, kept.Firing = kept.Firing.Handled, nil
	return s.setState(job, kept)
}

// resume finishes a firing that an error or the death of a daemon cut short. Submitted operations
// stay, and the previous operation is cancelled if that is still missing. Slots that were not
// submitted become due like any others.
func (s *scheduler) resume(ctx context.Context, job *scheduled) error {
	kept := job.state
	for _, slot := range kept.Firing.Slots {
		made, err := s.config.Intake.FindByKey(ctx, slotKey(job.def.Address(), slot), kept.Firing.At)
		if err != nil {
			return err
		}
		if made.Record == nil {
			break
		}
		id := made.Record.ID.String()
		if before, err := statefs.ParseID(kept.Operation); err == nil && kept.Firing.Overlap == schedule.OverlapCancel &&
			kept.Operation != id {
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
	return s.setState(job, kept)
}

// start submits the operation of a slot, or returns why it is skipped. last is the operation that
// the schedule started before. The returned operation is the last one after this call.
func (s *scheduler) start(ctx context.Context, def *catalog.Definition, last string, slot time.Time,
	overlap schedule.Overlap,
) (operation, skipped string, err error) {
	options := submit.Options{IdempotencyKey: slotKey(def.Address(), slot)}
	before, state, err := s.lastOperation(last, options.IdempotencyKey)
	if err != nil {
		return last, "", err
	}
	if state.Live() {
		if overlap == schedule.OverlapSkip {
			skipped = fmt.Sprintf("operation %s is %s", before, state)
			s.config.Logger.Info("slot skipped", "job", def.Address(), "slot", slot.Format(time.RFC3339), "reason", skipped)
			return last, skipped, nil
		}
		options.After, options.Require = []statefs.ID{before}, statefs.RequireEnd
	}
	if delay := schedule.Jitter(def.Address(), slot, def.Schedule.Jitter); delay > 0 {
		options.NotBefore = new(slot.Add(delay))
	}
	outcomes, err := s.config.Intake.Submit(ctx, submit.Request{
		Definition: def, Params: def.Schedule.Params, Options: options, By: byScheduleName, ForceNew: true,
	})
	if err != nil {
		return last, "", err
	}
	// Only now: a cancelled operation must have a successor, even after a crash.
	if state.Live() && overlap == schedule.OverlapCancel {
		if err := s.cancel(ctx, before); err != nil {
			return last, "", err
		}
	}
	id := outcomes[0].Record.ID
	s.config.Logger.Info("started by schedule", "job", def.Address(), "slot", slot.Format(time.RFC3339), "id", id,
		"new", outcomes[0].New)
	return id.String(), "", nil
}

// cancel requests the cancel of an operation, and does nothing if it has ended.
func (s *scheduler) cancel(ctx context.Context, id statefs.ID) error {
	if err := s.config.Owner.Request(ctx, id, statefs.Cancel, nil); !errors.Is(err, statefs.ErrNotLive) {
		return err
	}
	return nil
}

// lastOperation returns the operation that a schedule started last and its state. The state is ""
// if it has ended or was submitted under key.
func (s *scheduler) lastOperation(last, key string) (statefs.ID, statefs.State, error) {
	id, err := statefs.ParseID(last)
	if err != nil {
		return statefs.ID{}, "", nil //nolint:nilerr // the schedule has started none
	}
	state, err := s.config.Owner.State(id)
	if errors.Is(err, statefs.ErrNotLive) {
		return id, "", nil
	}
	if err != nil {
		return id, "", err
	}
	if rec, err := s.config.Owner.ReadRecord(id); err == nil && rec.IdempotencyKey == key {
		return id, "", nil
	}
	return id, state, nil
}
