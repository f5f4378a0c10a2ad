package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
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
		err := deleteRecords(ctx, s, day, func(id statefs.ID) (bool, error) {
			if _, ended, err := s.Find(id); err != nil || ended {
				return false, err
			}
			rec, err := s.owner.ReadRecord(id)
			if err != nil || !rec.CreatedAt.Before(before) {
				return false, nil //nolint:nilerr // an unreadable record is left for a person
			}
			if _, err := statefs.ReadSubmitted(s.owner.Tree, id); !errors.Is(err, fs.ErrNotExist) {
				return false, nil
			}
			young := s.owner.Now().Sub(rec.CreatedAt) <= statefs.SettleAge
			again = again || young
			return !young, nil
		})
		if err != nil {
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
		if has, err := s.hasOfDay(day); has || err != nil || s.owner.DayInUse(day) {
			if err != nil {
				return err
			}
			continue
		}
		if err := deleteRecords(ctx, s, day, unanswered(s)); err != nil {
			return err
		}
	}
	return nil
}

// deleteRecords deletes the records of a day that are of submits that were cut off.
func deleteRecords(ctx context.Context, s *Store, day string, unanswered func(statefs.ID) (bool, error)) error {
	files, err := s.owner.ListDay(day)
	if err != nil {
		return err
	}
	var ids []statefs.ID
	for _, id := range files.Records {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		is, err := unanswered(id)
		if err != nil {
			return err
		}
		if is {
			ids = append(ids, id)
		}
	}
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
	from, to, ok := aroundDay(day)
	if !ok {
		return true, nil // a folder with a name that is no day has no operations
	}
	err = s.view(func(x index) error {
		key, _ := x.created.Cursor().Seek(from)
		has = key != nil && bytes.Compare(key, to) < 0
		return nil
	})
	return has, err
}

// unanswered returns a function that reports whether an operation has a record without an end and is not live.
func unanswered(s *Store) func(statefs.ID) (bool, error) {
	live := sync.OnceValues(s.owner.Live.IDs) // after the listing of the records
	return func(id statefs.ID) (bool, error) {
		listed, err := live()
		if err != nil || listed[id] {
			return false, err
		}
		if rec, err := s.owner.ReadRecord(id); err != nil || rec.Status.Terminal() {
			return false, nil //nolint:nilerr // an unreadable record is left for a person
		}
		_, err = s.owner.State(id)
		if err != nil && !errors.Is(err, statefs.ErrNotLive) {
			return false, fmt.Errorf("check whether %s is live: %w", id, err)
		}
		return err != nil, nil
	}
}
