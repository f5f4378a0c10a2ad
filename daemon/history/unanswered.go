package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// A crash can leave the record of a submit that was never answered: it has no marker, it is not in
// live.list, and no start ends it. After a start, DeleteUnanswered deletes such records of the days
// on which the earlier daemon last worked. No index contains them, so the retention finds all
// others by their day: they are deleted when the index has no operation that was submitted on that
// day.

// unansweredDays is how many day folders DeleteUnanswered lists: that of today, and two of the
// earlier daemon, which may have died just after midnight.
const unansweredDays = 3

// DeleteUnanswered deletes the records of submits from before a time that were cut off, in the
// newest folders. again reports that some of them are too young: another process may still be
// submitting.
func (s *Store) DeleteUnanswered(ctx context.Context, before time.Time) (again bool, err error) {
	if s.Ready() != nil {
		return true, nil //nolint:nilerr // the index is not ready yet, so the caller tries again
	}
	days, err := s.owner.Days()
	if err != nil {
		return true, err
	}
	for _, day := range days[:min(len(days), unansweredDays)] {
		if ctx.Err() != nil {
			return true, ctx.Err()
		}
		files, err := s.owner.ListDay(day)
		if err != nil {
			return true, err
		}
		var unknown []statefs.ID
		err = s.view(func(x index) error {
			for _, id := range files.Records {
				if x.id.Get(keyOf(id)) == nil {
					unknown = append(unknown, id)
				}
			}
			return nil
		})
		if err != nil {
			return true, err
		}
		var ids []statefs.ID
		for _, id := range unknown {
			rec, err := s.owner.ReadRecord(id)
			if err != nil || !rec.CreatedAt.Before(before) {
				continue
			}
			if _, err := statefs.ReadSubmitted(s.owner.Tree, id); !errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if s.owner.Now().Sub(rec.CreatedAt) <= statefs.SettleAge {
				again = true
				continue
			}
			ids = append(ids, id)
		}
		if err := deleteUnansweredOf(s, day, ids); err != nil {
			return true, err
		}
	}
	return again, nil
}

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
		ids, err := unansweredOf(s, day)
		if err != nil {
			return err
		}
		if err := deleteUnansweredOf(s, day, ids); err != nil {
			return err
		}
	}
	return nil
}

func deleteUnansweredOf(s *Store, day string, ids []statefs.ID) error {
	if len(ids) == 0 {
		return nil
	}
	if err := s.owner.Delete(day, ids); err != nil {
		return err
	}
	s.log.Info("records of interrupted submits deleted", "day", day, "count", len(ids))
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
func unansweredOf(s *Store, day string) (ids []statefs.ID, err error) {
	files, err := s.owner.ListDay(day)
	if err != nil || len(files.Records) == 0 {
		return nil, err
	}
	live, err := s.owner.Live.IDs()
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
			return nil, fmt.Errorf("check whether %s is live: %w", id, err)
		}
	}
	return ids, nil
}
