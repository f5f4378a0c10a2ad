package history

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// HeldError means that an ended operation may not be deleted.
type HeldError struct {
	ID     statefs.ID
	Reason string
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("operation '%s' is kept: %s", e.ID, e.Reason)
}

// ErrUnknown means that no operation with the ID has ended.
var ErrUnknown = errors.New("no operation with this ID has ended")

// Guards are reasons to keep ended operations that the index does not know.
type Guards struct {
	// Referred are the operations that a live one retries or depends on. See [Guards.Refer].
	Referred map[statefs.ID]Reference
	// Undelivered are operations whose result is still to be delivered.
	Undelivered map[statefs.ID]bool
	// Trailing are ended operations whose optional steps go on.
	Trailing map[statefs.ID]bool
}

// Reference is a live operation's reference to an ended one.
type Reference struct {
	By statefs.ID
	// After is true when By comes after the ended operation, false when By retries it.
	After bool
}

// Refer adds the references of a live operation: the operation it retries and those it comes after.
func (g *Guards) Refer(rec *statefs.Record) {
	if rec.RetryOf != nil {
		g.note(*rec.RetryOf, Reference{By: rec.ID})
	}
	g.ReferAfter(rec.ID, rec.After...)
}

// ReferAfter adds operations that a live one comes after.
func (g *Guards) ReferAfter(child statefs.ID, parents ...statefs.ID) {
	for _, parent := range parents {
		g.note(parent, Reference{By: child, After: true})
	}
}

// ReferRetry adds that a live operation retries an ended one.
func (g *Guards) ReferRetry(retry, of statefs.ID) { g.note(of, Reference{By: retry}) }

func (g *Guards) note(id statefs.ID, r Reference) {
	if g.Referred == nil {
		g.Referred = make(map[statefs.ID]Reference)
	}
	g.Referred[id] = r
}

// reasonToKeep returns why an operation is kept, "" when it is not. A retry among those, which are
// deleted too, is no reason.
func (g *Guards) reasonToKeep(x index, r *Row, those map[statefs.ID]bool) string {
	switch {
	case r.Pinned:
		return "it is pinned"
	case g.Undelivered[r.ID]:
		return "its result is still to be delivered"
	case g.Trailing[r.ID]:
		return "its optional steps go on"
	}
	if ref, there := g.Referred[r.ID]; there {
		does := "retries it"
		if ref.After {
			does = "comes after it"
		}
		return fmt.Sprintf("operation '%s', which lives, %s", ref.By, does)
	}
	for _, by := range withPrefix(x.referred, keyOf(r.ID)) {
		if id, err := statefs.ParseID(string(by)); err != nil || !those[id] {
			return fmt.Sprintf("operation '%s' retries it", by)
		}
	}
	return ""
}

// Delete removes one ended operation. The error is ErrUnknown when the index does not have it, and
// a *HeldError when it is kept. now is the time of the retention clock.
func (s *Store) Delete(ctx context.Context, id statefs.ID, guards Guards, now time.Time) error {
	if err := s.Ready(); err != nil {
		return err
	}
	var refused error
	err := s.do(ctx, change{apply: func(x index) error {
		refused = nil
		r, there, err := x.find(id)
		if err != nil {
			return err
		}
		if !there {
			if x.deleting.Get(keyOf(id)) == nil {
				refused = ErrUnknown
			}
			return nil
		}
		if reason := guards.reasonToKeep(x, &r, nil); reason != "" {
			refused = &HeldError{id, reason}
			return nil
		}
		return x.scheduleDeletion(id, now, s.deletedIDRetention)
	}})
	if err != nil {
		return err
	}
	if refused != nil {
		return refused
	}
	return s.deleteFiles(ctx, []statefs.ID{id})
}

// deleteFiles removes the files of operations that are scheduled for deletion.
func (s *Store) deleteFiles(ctx context.Context, ids []statefs.ID) error {
	days := make(map[string][]statefs.ID)
	for _, id := range ids {
		days[id.Day()] = append(days[id.Day()], id)
	}
	var errs []error
	for _, day := range slices.Sorted(maps.Keys(days)) {
		if ctx.Err() != nil {
			return ctx.Err() // the next start continues
		}
		if err := s.deleteOfDay(day, days[day]); err != nil {
			errs = append(errs, err)
			continue
		}
		gone := days[day]
		errs = append(errs, s.do(ctx, change{apply: func(x index) error {
			for _, id := range gone {
				if err := x.deleting.Delete(keyOf(id)); err != nil {
					return err
				}
			}
			return nil
		}}))
	}
	return errors.Join(errs...)
}

// deleteOfDay removes the files of operations; the whole folder of the day at once when it contains
// nothing else.
func (s *Store) deleteOfDay(day string, ids []statefs.ID) error {
	if len(ids) > 1 && !s.owner.DayInUse(day) {
		files, err := s.owner.ListDay(day)
		if err != nil {
			return err
		}
		doomed := make(map[statefs.ID]bool, len(ids))
		for _, id := range ids {
			doomed[id] = true
		}
		others := files.Others
		for _, id := range files.Records {
			others = others || !doomed[id]
		}
		if !others {
			return s.owner.DeleteDay(day)
		}
	}
	return s.owner.Delete(day, ids)
}

// Resume continues deletions that a crash cut off.
func (s *Store) Resume(ctx context.Context) error {
	var ids []statefs.ID
	err := s.view(func(x index) error {
		return x.deleting.ForEach(func(_, value []byte) error {
			if id, err := statefs.ParseID(string(value)); err == nil {
				ids = append(ids, id)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	return s.deleteFiles(ctx, ids)
}

// Pin protects an ended operation from deletion, or ends the protection. The error is ErrUnknown
// when it has not ended.
func (s *Store) Pin(ctx context.Context, id statefs.ID, pinned bool) error {
	if err := s.Ready(); err != nil {
		return err
	}
	if _, has, err := s.Find(id); err != nil || !has {
		return errors.Join(err, ErrUnknown)
	}
	rec, err := s.owner.ReadRecord(id)
	if err != nil {
		return err
	}
	if !rec.Status.Terminal() {
		return ErrUnknown
	}
	rec.Pinned = pinned
	line, _, _ := s.owner.Journal.Reach()
	s.numbers.hold(rec.FinishedSeq, line)
	defer s.numbers.resolve(rec.FinishedSeq)
	if err := s.owner.AmendRecord(rec); err != nil {
		return err
	}
	return s.do(ctx, put(s.endedRow(rec)))
}
