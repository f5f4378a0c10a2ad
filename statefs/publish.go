package statefs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"

	"github.com/jobdir/jobdir/statefs/files"
)

// Submit creates a new operation, which is scheduled if its start time is in the future, else
// queued. It returns the record once it is as durable as the storage promises. It does not check
// for an equal operation; package submit does.
//
// The order is: number, record, marker, directories. The record is complete before the marker
// exists, so a marker without a record was never acknowledged, nor was a record without a marker.
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

// Draft creates the record of a new operation, with its number and ID, and writes none of it to
// disk. Pass it to Publish or Discard.
func (t *Tree) Draft(s Submission) (*Record, error) {
	if s.Key != "" { // in the order of their numbers: see SubmitListener
		t.drafting.Lock()
		defer t.drafting.Unlock()
	}
	rec, err := t.newRecord(s)
	if err != nil {
		return nil, fmt.Errorf("submit %s/%s: %w", s.Group, s.Job, err)
	}
	if s.Key != "" {
		t.handover.expect(rec)
	}
	return rec, nil
}

// Discard gives up drafts that will not be published.
func (t *Tree) Discard(recs ...*Record) {
	if len(recs) > 0 {
		t.handover.withdraw(recs...)
	}
}

// Publish creates the operations of the drafts, all or none, and returns when they are as durable
// as the storage promises. The records of several drafts are synced as one file, and the folders
// once for all. A *PartialPublishError is the exception: all operations are accepted, but some
// begin only after the next start of the daemon.
func (t *Tree) Publish(recs ...*Record) error {
	if len(recs) == 0 {
		return nil
	}
	if err := t.publish(recs); err != nil {
		t.handover.withdraw(recs...)
		return t.jobsFolderCause(err)
	}
	return nil
}

// ReadSubmitted is [Tree.ReadRecord], but the record of a submit that was cut off before its marker
// existed counts as missing: no client knows the operation, and it never begins. So does a submit
// that is still under way.
func ReadSubmitted(t *Tree, id ID) (*Record, error) {
	rec, err := t.ReadRecord(id)
	if err != nil || !rec.asSubmitted() {
		return rec, err
	}
	if _, err := t.State(id); !errors.Is(err, ErrNotLive) {
		return rec, err
	}
	if rec.Batch != nil { // accepted by the file of its list; a start makes the missing marker
		if _, err := t.root.Lstat(batchName(*rec.Batch, batchSuffix)); err == nil {
			return rec, nil
		}
	}
	answered, err := t.live.IDs()
	if err != nil || answered[id] { // its marker was removed
		return rec, err
	}
	// It may have begun or ended since the record was read.
	if rec, err = t.ReadRecord(id); err == nil && rec.asSubmitted() {
		return nil, fmt.Errorf("the submit of operation %s was cut off: %w", id, fs.ErrNotExist)
	}
	return rec, err
}

// asSubmitted reports whether nothing has happened to the operation since its submit.
func (r *Record) asSubmitted() bool {
	return r.Status.Live() && r.Next == "" && r.Starts == 0 && len(r.Transitions) == 1 &&
		r.Transitions[0].Cause == CauseSubmit
}

// EnsureDurable returns when an operation that another process is submitting is as durable as the
// storage promises and can be acknowledged.
func (t *Tree) EnsureDurable(id ID) error {
	if err := t.syncOperation(id); err != nil {
		return err
	}
	t.live.Add(id)
	return nil
}

// PartialPublishError reports that some markers of a list could not be created after others were.
// The next start creates them.
type PartialPublishError struct{ Err error }

func (e *PartialPublishError) Error() string {
	return fmt.Sprintf("The list is accepted, and some of its operations begin only when the daemon is started again: %v",
		e.Err)
}

func (e *PartialPublishError) Unwrap() error { return e.Err }

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
	if list {
		t.handover.expect(recs...)
	}
	for _, rec := range recs {
		// Numbers are unique; this check guards a storage restored from a backup. If nothing is
		// written before the record, creating the record checks its name.
		if !list && rec.RetryOf == nil {
			break
		}
		if err := t.checkNoRecord(rec.ID); err != nil {
			return fmt.Errorf("operation %s: %w", rec.ID, err)
		}
	}
	if list {
		if err := t.openBatch(recs); err != nil {
			return errors.Join(err, t.dropBatch(recs[0].ID))
		}
	}
	err := forEachParallel(recs, parallelWriters, t.publishRecord)
	if !list && errors.Is(err, fs.ErrExist) { // not ours to remove
		return fmt.Errorf("operation %s: %w", recs[0].ID, err)
	}
	if err == nil {
		err = t.publishMarker(recs[0])
	}
	if err != nil {
		return t.revoke(recs, err)
	}
	if list {
		if err := forEachParallel(recs[1:], parallelWriters, t.publishMarker); err != nil {
			return &PartialPublishError{err}
		}
	}
	if err := t.checkJobsFolder(); err != nil {
		return err // the daemon of that folder ends, and the next one finds the record
	}
	if err := t.syncOperations(days); err != nil {
		return err
	}
	t.live.Add(idsOf(recs)...) // only from here on does a start treat a missing marker as removed
	if list {
		t.closeBatch(recs[0].ID)
	}
	return nil
}

func idsOf(recs []*Record) []ID {
	ids := make([]ID, len(recs))
	for i, rec := range recs {
		ids[i] = rec.ID
	}
	return ids
}

// revoke removes operations that have no marker yet.
func (t *Tree) revoke(recs []*Record, why error) error {
	if len(recs) > 1 {
		if err := t.dropBatch(recs[0].ID); err != nil {
			return &PartialPublishError{errors.Join(why, err)}
		}
	}
	t.withdraw(recs)
	return why
}

// parallelWriters bounds parallel unsynced writes: they contend for the same folders, and more of
// them would only wait.
const parallelWriters = 4

// forEachParallel calls do for every element, at most most calls at once. It returns the first
// error and starts no more calls after it.
func forEachParallel[T any](list []T, most int, do func(T) error) error {
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

// publishRecord writes everything of an operation except its marker. The record of an operation of
// a list is durable in the file of the list.
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
	return t.files.Create(dayFile(rec.ID, ".json"), append(data, '\n'), rec.Batch == nil && t.options.Durability == Power)
}

func (t *Tree) publishMarker(rec *Record) error {
	t.handover.put(rec)
	return t.files.Create(path.Join(jobsDir, MarkerName(rec.ID, rec.Status)), formatStamp(rec.CreatedAt, nil), false)
}

// withdraw removes operations without a marker: no client knows them and the daemon has not seen
// them. A record that cannot be removed is not in the list of live operations and has no effect.
func (t *Tree) withdraw(recs []*Record) {
	for _, rec := range recs {
		t.handover.take(rec.ID)
		if err := t.root.Remove(dayFile(rec.ID, ".json")); err == nil || files.IsMissing(err) {
			_ = t.root.Remove(dayFile(rec.ID, itemsSuffix)) // the inherited items
		}
	}
}

// syncOperations makes the names of operations durable: their records and their markers. It syncs
// all folders in parallel.
func (t *Tree) syncOperations(days map[string]bool) error {
	if t.options.Durability != Power {
		return nil
	}
	errs := make(chan error, len(days))
	for day := range days {
		go func() { errs <- t.syncDay(day) }()
	}
	err := t.jobsSync.Sync()
	for range days {
		err = errors.Join(err, <-errs)
	}
	return err
}
