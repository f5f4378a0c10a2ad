package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// A crash can leave the record of a submit that was never answered: it has no marker, it is not in
// live.list, and no start ends it. No index contains it, so the retention finds it by its day: it
// is deleted when the index has no operation that was submitted on that day.

// pruneUnanswered deletes the records of submits that were cut off, on days without operations in
// the index.
func (s *Store) pruneUnanswered(ctx context.Context) error {
	days, err := s.owner.Days()
	if err != nil {
		return err
	}
	for _, day := range days {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if has, err := s.hasOfDay(day); has || err != nil || s.owner.DayInUse(day) {
			if err != nil {
				return err
			}
			continue
		}
		ids, err := s.unansweredOf(day)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			continue
		}
		if err := s.owner.Delete(day, ids); err != nil {
			return err
		}
		s.log.Info("records of submits that were cut off are deleted", "day", day, "count", len(ids))
	}
	return nil
}

// hasOfDay reports whether the index has an operation that was submitted on a day, in any time
// zone.
func (s *Store) hasOfDay(day string) (has bool, err error) {
	midnight, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return true, nil //nolint:nilerr // a folder with a name that is no day has no operations
	}
	from, to := timeKey(nanos(midnight.Add(-14*time.Hour)), nil), timeKey(nanos(midnight.Add(36*time.Hour)), nil)
	err = s.view(func(x index) error {
		key, _ := x.created.Cursor().Seek(from)
		has = key != nil && bytes.Compare(key, to) < 0
		return nil
	})
	return has, err
}

// unansweredOf returns the operations of a day that have a record without an end and are not live.
func (s *Store) unansweredOf(day string) (ids []statefs.ID, err error) {
	files, err := s.owner.ListDay(day)
	if err != nil || len(files.Records) == 0 {
		return nil, err
	}
	live, err := s.owner.LiveList()
	if err != nil {
		return nil, err
	}
	for _, id := range files.Records {
		if live[id] {
			continue
		}
		if rec, err := s.owner.ReadRecord(id); err != nil || rec.Status.Terminal() {
			continue // an unreadable record is left for a person
		}
		switch _, err := s.owner.State(id); {
		case errors.Is(err, statefs.ErrNotLive):
			ids = append(ids, id)
		case err != nil:
			return nil, fmt.Errorf("look whether %s lives: %w", id, err)
		}
	}
	return ids, nil
}
