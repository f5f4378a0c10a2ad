package statefs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
)

// Submit makes a new operation, scheduled when it is not to start before a time that is to come and else queued, and returns its record once
// it is as durable as the storage promises. It does not ask whether an equal one is there: package submit does.
//
// The order is: number, record, marker, directories. The record is complete before the marker names it, so a marker without a
// record was never acknowledged, and a record without a marker neither.
func (t *Tree) Submit(_ context.Context, s Submission) (*Record, error) {
	rec, err := t.Draft(s)
	if err != nil {
		return nil, err
	}
	if err := t.Publish(rec); err != nil {
		return nil, fmt.Errorf("submit %s/%s: %w", s.Group, s.Job, err)
	}
	return rec, nil
}

// Draft makes the record of a new operation, which has its number and its ID, and of which nothing is on disk yet.
func (t *Tree) Draft(s Submission) (*Record, error) {
	rec, err := t.newRecord(s)
	if err != nil {
		return nil, fmt.Errorf("submit %s/%s: %w", s.Group, s.Job, err)
	}
	return rec, nil
}

// Publish makes operations of drafts, all of them or none, and returns when they are as durable as the storage promises. The
// records of several are synced in one file and the folders once for all. A *PartError is the exception: all of them are accepted, and some begin only with
// the next start of the daemon.
func (t *Tree) Publish(recs ...*Record) error {
	if len(recs) == 0 {
		return nil
	}
	if err := t.publish(recs); err != nil {
		return t.displacedBy(err)
	}
	return nil
}

// Settle returns when an operation that another process may be about to submit is as durable as the storage promises.
func (t *Tree) Settle(id ID) error { return t.syncOperation(id) }

// PartError says that the markers of some operations of a list could not be made after those of others were. A start makes them.
type PartError struct{ Err error }

func (e *PartError) Error() string {
	return fmt.Sprintf("The list is accepted, and some of its operations begin only when the daemon is started again: %v", e.Err)
}

func (e *PartError) Unwrap() error { return e.Err }

func (t *Tree) publish(recs []*Record) error {
	days := make(map[string]bool)
	for _, rec := range recs {
		if days[rec.ID.Day()] = true; len(recs) > 1 {
			rec.Batch = &recs[0].ID
		}
	}
	for day := range days {
		if _, err := t.day(day); err != nil {
			return err
		}
	}
	list := len(recs) > 1
	for _, rec := range recs {
		// Numbers are unique; this guards a storage that was put back from a copy. Where nothing is written before the record, its name does.
		if !list && rec.RetryOf == nil {
			break
		}
		if err := t.isNew(rec.ID); err != nil {
			return fmt.Errorf("operation %s: %w", rec.ID, err)
		}
	}
	if list {
		if err := t.openBatch(recs); err != nil {
			return errors.Join(err, t.dropBatch(recs[0].ID))
		}
	}
	t.live.add(t, recs...)
	err := sideBySide(recs, fewWriters, t.publishRecord)
	if !list && errors.Is(err, fs.ErrExist) { // that one is not ours to take back
		return fmt.Errorf("operation %s: %w", recs[0].ID, err)
	}
	if err == nil {
		err = t.publishMarker(recs[0])
	}
	if err != nil {
		return t.revoke(recs, err)
	}
	if list {
		if err := sideBySide(recs[1:], fewWriters, t.publishMarker); err != nil {
			return &PartError{err}
		}
	}
	if err := t.inPlace(); err != nil {
		return err // the daemon that has the right folder ends, and the next one finds the record
	}
	if err := t.syncOperations(days); err != nil {
		return err
	}
	if list {
		t.closeBatch(recs[0].ID)
	}
	return nil
}

// revoke leaves nothing of operations that have no marker yet.
func (t *Tree) revoke(recs []*Record, why error) error {
	if len(recs) > 1 {
		if err := t.dropBatch(recs[0].ID); err != nil {
			return &PartError{errors.Join(why, err)}
		}
	}
	t.withdraw(recs)
	return why
}

// fewWriters is how many write at once what is not synced: they meet at the same folders, and more of them only wait for each other.
const fewWriters = 4

// sideBySide calls do for every element, for so many at once, and returns the first error, after which it begins no more.
func sideBySide[T any](list []T, most int, do func(T) error) error {
	if len(list) == 1 {
		return do(list[0])
	}
	var first error
	var failed sync.Once
	var workers sync.WaitGroup
	next := make(chan T)
	stop := make(chan struct{})
	for range min(most, len(list)) {
		workers.Go(func() {
			for one := range next {
				if err := do(one); err != nil {
					failed.Do(func() {
						first = err
						close(stop)
					})
				}
			}
		})
	}
feeding:
	for _, one := range list {
		select {
		case next <- one:
		case <-stop:
			break feeding
		}
	}
	close(next)
	workers.Wait()
	return first
}

// publishRecord writes all of an operation but its marker. The record of one of a list is durable in the file of the list.
func (t *Tree) publishRecord(rec *Record) error {
	if rec.RetryOf != nil {
		if err := t.inheritItems(*rec.RetryOf, rec); err != nil {
			return err
		}
	}
	data, err := marshalRecord(rec)
	if err != nil {
		return fmt.Errorf("record of %s: %w", rec.ID, err)
	}
	return t.files.create(dayFile(rec.ID, ".json"), append(data, '\n'), rec.Batch == nil && t.options.Durability == Power)
}

func (t *Tree) publishMarker(rec *Record) error {
	t.handed.put(rec)
	return t.files.create(path.Join(jobsDir, MarkerName(rec.ID, rec.Status)), formatStamp(rec.CreatedAt, nil), false)
}

// withdraw takes back operations without a marker: nobody was told of them and the daemon does not see them, so they never were. A
// record that cannot be removed stays in the list of live ones, and is ended at the next start.
func (t *Tree) withdraw(recs []*Record) {
	for _, rec := range recs {
		t.handed.take(rec.ID)
		if err := t.root.Remove(dayFile(rec.ID, ".json")); err == nil || errors.Is(err, fs.ErrNotExist) {
			_ = t.root.Remove(dayFile(rec.ID, itemsSuffix)) // what it would have inherited
			t.live.remove(t, rec.ID)
		}
	}
}

// syncOperations makes the names of operations durable: their records and their markers. All folders are synced side by side.
func (t *Tree) syncOperations(days map[string]bool) error {
	if t.options.Durability != Power {
		return nil
	}
	errs := make(chan error, len(days))
	for day := range days {
		go func() { errs <- t.syncDay(day) }()
	}
	err := t.jobsSync.sync()
	for range days {
		err = errors.Join(err, <-errs)
	}
	return err
}
