package history

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jobdir/jobdir/statefs"
)

// HeldError says why an operation that has ended may not be deleted.
type HeldError struct {
	ID     statefs.ID
	Reason string
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("operation '%s' is kept: %s", e.ID, e.Reason)
}

// ErrUnknown says that no operation with an ID has ended.
var ErrUnknown = errors.New("no operation with this ID has ended")

// Guards are reasons to keep what has ended which the index does not know.
type Guards struct {
	// Referred are operations that a live one retries, or comes after. See [Guards.Refer].
	Referred map[statefs.ID]Reference
	// Undelivered are operations with a result that is still to be delivered.
	Undelivered map[statefs.ID]bool
	// Trailing are operations that have ended and whose optional steps go on.
	Trailing map[statefs.ID]bool
}

// Reference says which live operation refers to one that has ended, and how.
type Reference struct {
	By statefs.ID
	// After says that By comes after it, false that By retries it.
	After bool
}

// Refer notes what a live operation refers to: the one that it retries, and those that it comes after.
func (g *Guards) Refer(rec *statefs.Record) {
	if rec.RetryOf != nil {
		g.note(*rec.RetryOf, Reference{By: rec.ID})
	}
	g.ReferAfter(rec.ID, rec.After...)
}

// ReferAfter notes operations that a live one comes after.
func (g *Guards) ReferAfter(child statefs.ID, parents ...statefs.ID) {
	for _, parent := range parents {
		g.note(parent, Reference{By: child, After: true})
	}
}

// ReferRetry notes that a live operation retries an ended one.
func (g *Guards) ReferRetry(retry, of statefs.ID) { g.note(of, Reference{By: retry}) }

func (g *Guards) note(id statefs.ID, r Reference) {
	if g.Referred == nil {
		g.Referred = make(map[statefs.ID]Reference)
	}
	g.Referred[id] = r
}

// held returns why an operation is kept, "" when it is not. those beside it go too, so what they refer to is no reason.
func (g *Guards) held(x index, r *Row, those map[statefs.ID]bool) string {
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
	key := keyOf(r.ID)
	cursor := x.referred.Cursor()
	for at, by := cursor.Seek(key); at != nil && strings.HasPrefix(string(at), string(key)); at, by = cursor.Next() {
		if id, err := statefs.ParseID(string(by)); err != nil || !those[id] {
			return fmt.Sprintf("operation '%s' retries it", by)
		}
	}
	return ""
}

// Delete removes one operation that has ended. The error is ErrUnknown when the index does not have it, and a *HeldError when it is
// kept.
func (s *Store) Delete(ctx context.Context, id statefs.ID, guards Guards) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	err := s.do(ctx, change{apply: func(x index) error {
		r, there, err := x.find(id)
		if err != nil || !there {
			return err
		}
		if reason := guards.held(x, &r, nil); reason != "" {
			return nil
		}
		return x.doom(id)
	}})
	if err != nil {
		return err
	}
	var refused error
	err = s.view(func(x index) error {
		r, there, err := x.find(id)
		switch {
		case err != nil:
			return err
		case there:
			refused = &HeldError{id, guards.held(x, &r, nil)}
		case x.doomed.Get(keyOf(id)) == nil:
			refused = ErrUnknown
		}
		return nil
	})
	if err := errors.Join(err, refused); err != nil {
		return err
	}
	return s.deleteFiles(ctx, []statefs.ID{id})
}

// doom takes an operation out of the index and notes that its files have to go: whatever happens now, they will.
func (x index) doom(id statefs.ID) error {
	if err := x.removeAll(id); err != nil {
		return err
	}
	return x.doomed.Put(keyOf(id), []byte(id.String()))
}

// deleteFiles removes the files of operations that are doomed.
func (s *Store) deleteFiles(ctx context.Context, ids []statefs.ID) error {
	days := make(map[string][]statefs.ID)
	for _, id := range ids {
		days[id.Day()] = append(days[id.Day()], id)
	}
	var errs []error
	for _, day := range slices.Sorted(maps.Keys(days)) {
		if ctx.Err() != nil {
			return ctx.Err() // the next start goes on
		}
		if err := s.deleteOfDay(day, days[day]); err != nil {
			errs = append(errs, err)
			continue
		}
		gone := days[day]
		errs = append(errs, s.do(ctx, change{apply: func(x index) error {
			for _, id := range gone {
				if err := x.doomed.Delete(keyOf(id)); err != nil {
					return err
				}
			}
			return nil
		}}))
	}
	return errors.Join(errs...)
}

// deleteOfDay removes the whole folder of a day at once where nothing else is in it.
func (s *Store) deleteOfDay(day string, ids []statefs.ID) error {
	if len(ids) > 1 && !s.owner.KeepDay(day) {
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

// Resume goes on with deletions that a crash cut off.
func (s *Store) Resume(ctx context.Context) error {
	ids, err := s.doomed()
	if err != nil || len(ids) == 0 {
		return err
	}
	return s.deleteFiles(ctx, ids)
}

// doomed returns the operations whose deletion was cut off.
func (s *Store) doomed() (ids []statefs.ID, err error) {
	err = s.view(func(x index) error {
		return x.doomed.ForEach(func(_, value []byte) error {
			if id, err := statefs.ParseID(string(value)); err == nil {
				ids = append(ids, id)
			}
			return nil
		})
	})
	return ids, err
}

// Pin keeps an operation that has ended from being deleted, or ends that. The error is ErrUnknown when it has not ended.
func (s *Store) Pin(ctx context.Context, id statefs.ID, pinned bool) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	if has, err := s.Has(id); err != nil || !has {
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
	if err := s.owner.AmendRecord(rec); err != nil {
		return err
	}
	row := RowOf(rec)
	row.Bytes = s.owner.Footprint(rec)
	return s.do(ctx, change{apply: func(x index) error { return x.put(&row) }, keep: true})
}
