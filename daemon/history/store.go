package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/notify"
)

// FileName is the name of the index in the storage directory.
const FileName = "history.db"

// Store is the index of ended operations. Run writes it; every other method is safe for concurrent
// use.
type Store struct {
	writer
	// pruneAtOnce is how many operations are deleted before the guards are read again.
	pruneAtOnce int
	// deletedIDRetention is how long the ID of a deleted operation is remembered.
	deletedIDRetention time.Duration
	// followInterval is that constant, unless a test sets it.
	followInterval time.Duration
}

// writer is the queue of changes on their way into the index, and whether questions can be answered: it decides what is
// written in one transaction, what is tried again, and when the index is complete.
type writer struct {
	indexFile
	numbers feedNumbers

	mu       sync.Mutex // guards the fields below
	queue    []change
	urgent   bool          // a change in the queue does not wait for its second
	written  position      // that of the file, after the last transaction
	writing  []change      // changes that have left the queue and are being written
	wake     chan struct{} // holds a token when there is work
	building bool          // the index is not complete yet
	caughtUp bool          // the operations that ended before the start are in the index
	failed   error         // why the index cannot be written
	built    chan struct{} // closed when the index is complete; replaced when a build begins after that
	rebuild  bool          // run must start a build
	reading  buildProgress // progress of the build
	ended    bool          // run has returned
}

// Live is a live operation, as its daemon has it in memory.
type Live struct {
	ID    statefs.ID
	State statefs.State
	Row   Packed
}

// change is one item of a transaction of the writer.
type change struct {
	apply func(index) error
	row   *queuedRow // that apply adds, unless it is nil
	// mustSucceed makes the writer retry the change until it succeeds, because the index must
	// contain it.
	mustSucceed bool
	// sync makes the whole file durable.
	sync bool
	// caughtUp means that the changes enqueued before it are the ends from before the start.
	caughtUp bool
	// completes means that apply says that every record has been read.
	completes bool
	// done receives the outcome, unless it is nil. It has capacity for it.
	done chan error
}

// Open opens the index of a storage, and creates it when there is none. An index that cannot be
// trusted is emptied; Run fills it again. Close releases it.
func Open(owner *statefs.Owner, logger *slog.Logger) (*Store, error) {
	logger = cmp.Or(logger, slog.New(slog.DiscardHandler))
	s := &Store{
		writer: writer{
			indexFile: indexFile{owner: owner, log: logger, path: filepath.Join(owner.Dir(), FileName)},
			wake:      make(chan struct{}, 1), built: make(chan struct{}),
		},
		pruneAtOnce: 10 * buildBatch, deletedIDRetention: minDeletedIDRetention, followInterval: followInterval,
	}
	last, err := s.openFile(s.startBuild)
	if err != nil {
		return nil, err
	}
	for _, l := range s.missed {
		if l.Record != nil {
			last = max(last, l.Record.FinishedSeq, l.Record.NeedsPersonSeq)
		}
	}
	if err := s.numbers.begin(owner.Numbers, last+1); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	s.catchUpWithJournal()
	owner.Journal.Follow(s.checkpoint)
	return s, nil
}

// Close releases the index. Run must have returned, or never be called.
func (s *Store) Close() error {
	s.owner.Journal.Follow(nil)
	s.dbMu.Lock()
	defer s.dbMu.Unlock()
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close %s: %w", s.path, err)
	}
	return nil
}

const (
	// retryInterval is the delay before a failed write is retried.
	retryInterval = time.Second
	// batchInterval is the least time between the beginnings of two writing transactions:
	// operations that end in between share the next one. A transaction costs as much for one change
	// as for ten.
	batchInterval = 4 * time.Millisecond
)

// Run writes ends into the index until ctx ends, and then what is still queued. It always returns
// nil: an index that cannot be written makes queries fail, and nothing else.
func (s *Store) Run(ctx context.Context) error {
	stop := func() {}
	defer func() { stop() }()
	var began time.Time
	for {
		if s.takeRebuild() {
			stop() // an earlier build waits for this goroutine
			stop = s.runBuild(ctx)
		}
		wait, due := s.untilDue(began)
		if due && wait <= 0 {
			began = time.Now()
			rest := batchInterval
			ok, wrote := s.writeDue()
			if !ok {
				rest = retryInterval
			} else if !wrote {
				continue
			}
			select {
			case <-time.After(rest - time.Since(began)):
			case <-ctx.Done():
				if !ok {
					stop()
					s.close()
					return nil
				}
			}
			continue
		}
		var timer <-chan time.Time
		if due {
			timer = time.After(wait)
		}
		select {
		case <-s.wake:
		case <-timer:
		case <-ctx.Done():
			stop()
			s.close()
			return nil
		}
	}
}

// untilDue returns how long the next transaction has to wait, and false if there is nothing to write.
func (s *Store) untilDue(began time.Time) (wait time.Duration, due bool) {
	seals := s.sealDue()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written.follows && !s.urgent {
		wait = s.followInterval - time.Since(began)
	}
	return wait, len(s.queue) > 0 || seals
}

// writeDue writes what is in the queue. If that is empty, or the index follows the journal, it also indexes the texts
// of segments that are complete.
func (s *Store) writeDue() (ok, wrote bool) {
	upTo := s.reach() // before the queue is taken: it has what was published until then
	last, _ := s.numbers.upTo()
	seals := s.sealDue()
	batch := s.takeQueue()
	if seals && (s.follows || len(batch) == 0) {
		batch = append(batch, change{apply: func(x index) error { return s.seal(x, last) }})
	}
	return s.write(batch, upTo), slices.ContainsFunc(batch, change.writes)
}

// runBuild starts a build. stop cancels it and waits for its end.
func (s *Store) runBuild(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var builder sync.WaitGroup
	builder.Go(func() { s.build(ctx) })
	return func() {
		cancel()
		builder.Wait()
	}
}

// sealDue reports whether a segment is complete whose texts are not indexed.
func (w *writer) sealDue() bool {
	last, _ := w.numbers.upTo()
	return w.Ready() == nil && w.sealable(last)
}

func (f *indexFile) sealable(last uint64) bool { return last+1 >= (f.sealed/segmentSize+1)*segmentSize }

// seal indexes the texts of the next segment of numbers up to last. A transaction that comes once a second takes more.
func (f *indexFile) seal(x index, last uint64) (err error) {
	for n := 0; f.sealable(last) && err == nil && (n == 0 || f.follows && n < sealsAtOnce); n++ {
		f.sealed, err = x.seal(f.sealed, last)
	}
	return err
}

// close writes the last changes, and marks the file as clean unless the journal is still in use.
func (s *Store) close() {
	upTo := s.reach()
	ok := s.write(append(s.takeQueue(), change{sync: true}), upTo)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if !ok {
		s.log.Warn("history index not closed; the next start rebuilds it", "error", s.failed)
	}
	for _, c := range s.queue {
		c.answer(ErrNotReady)
	}
	s.queue = nil
}

// writes reports whether the change touches the file. Other changes are answered after those before
// them.
func (c change) writes() bool { return c.apply != nil || c.sync }

func (c *change) answer(err error) {
	if c.done != nil {
		c.done <- err
	}
}

// isUrgent reports whether a change does not wait for the next second.
func (c change) isUrgent() bool { return c.done != nil || c.sync || c.caughtUp }

// enqueue passes changes to the writer.
func (w *writer) enqueue(changes ...change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		for i := range changes {
			changes[i].answer(ErrNotReady)
		}
		return
	}
	urgent := !w.written.follows || slices.ContainsFunc(changes, change.isUrgent)
	if urgent || len(w.queue) == 0 { // otherwise Run waits for its time already
		notify.Wake(w.wake)
	}
	w.queue, w.urgent = append(w.queue, changes...), w.urgent || urgent
}

func (w *writer) takeQueue() []change {
	w.mu.Lock()
	defer w.mu.Unlock()
	batch := w.queue
	w.queue, w.writing, w.urgent = nil, batch, false
	return batch
}

// startBuild marks the index as empty: run must build it.
func (w *writer) startBuild() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.building {
		w.building = true
		if w.caughtUp { // otherwise built is still open
			w.built = make(chan struct{})
		}
	}
	w.rebuild = true
	notify.Wake(w.wake)
}

// buildFinished marks the index as complete, unless it was damaged again.
func (w *writer) buildFinished() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rebuild {
		return
	}
	w.building = false
	w.signalBuiltLocked()
	notify.Wake(w.wake) // the texts can be indexed now
}

func (w *writer) takeRebuild() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := w.rebuild
	w.rebuild = false
	return due
}

// do enqueues a change and returns its outcome.
func (w *writer) do(ctx context.Context, c change) error {
	c.done = make(chan error, 1)
	w.enqueue(c)
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write applies the changes in one transaction. It returns false when that fails; changes with
// mustSucceed are then queued again. See reach about upTo.
func (w *writer) write(batch []change, upTo *uint64) bool {
	err := w.transact(batch, upTo)
	if isDamage(err) {
		w.log.Error("history index is damaged, rebuilding it", "file", w.path, "error", err)
		if err = w.recreate(w.startBuild); err == nil {
			batch = withoutComplete(batch)
			err = w.transact(batch, upTo)
		}
	}
	return w.conclude(batch, err)
}

// withoutComplete refuses the change which says that the build of a damaged index is done.
func withoutComplete(batch []change) []change {
	return slices.DeleteFunc(slices.Clone(batch), func(c change) bool {
		if c.completes {
			c.answer(ErrNotReady)
		}
		return c.completes
	})
}

// conclude answers the changes of a transaction, or queues them again. It returns false if that has failed.
func (w *writer) conclude(batch []change, err error) bool {
	w.noteWriteResult(err)
	if err != nil {
		w.requeue(batch, err)
		return false
	}
	for i := range batch {
		if batch[i].caughtUp {
			w.catchUp()
		}
		batch[i].answer(nil)
	}
	return true
}

func (w *writer) catchUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.caughtUp = true
	w.signalBuiltLocked()
}

// signalBuiltLocked closes built when the index is complete.
func (w *writer) signalBuiltLocked() {
	if w.building || !w.caughtUp {
		return
	}
	if !notify.IsClosed(w.built) {
		close(w.built)
	}
}

func (w *writer) transact(batch []change, upTo *uint64) error {
	durable, complete, whole := false, w.complete, w.whole
	for i := range batch {
		durable, complete, whole = durable || batch[i].sync, complete || batch[i].completes, whole || batch[i].caughtUp
	}
	var err error
	if upTo != nil && complete && whole {
		err = w.updateUpTo(*upTo, false, workOf(batch))
	} else {
		err = w.update(durable, upTo, workOf(batch))
	}
	if err == nil {
		w.complete, w.whole = complete, whole
	}
	return err
}

// workOf returns what changes do in a transaction.
func workOf(batch []change) (work []func(index) error) {
	for i := range batch {
		if batch[i].apply != nil {
			work = append(work, batch[i].apply)
		}
	}
	return work
}

// noteWriteResult records whether the index can be written, and logs when that changes.
func (w *writer) noteWriteResult(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.failed == nil {
		w.log.Error("history index cannot be written; lists and the feed wait", "file",
			w.path, "error", err)
	}
	if err == nil && w.failed != nil {
		w.log.Info("history index can be written again", "file", w.path)
	}
	w.failed, w.writing, w.written = err, nil, w.position
}

// requeue puts the changes with mustSucceed back to the front of the queue, and answers the others
// with an error.
func (w *writer) requeue(batch []change, err error) {
	var again []change
	for i := range batch {
		if batch[i].mustSucceed {
			again = append(again, batch[i])
		} else {
			batch[i].answer(fmt.Errorf("%w (%w)", ErrNotReady, err))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue, w.urgent = append(again, w.queue...), true
	notify.Wake(w.wake)
}

// Ended adds an operation whose terminal record is durable, and publishes its number.
func (s *Store) Ended(rec *statefs.Record) { s.publish(s.endedRow(rec)) }

// publish passes a row to the writer. Until the index has it, it is answered from memory.
func (s *Store) publish(row Row) {
	s.enqueue(put(row))
	s.numbers.resolve(row.Number)
}

// put returns the change that adds a row.
func put(row Row) change {
	r := &queuedRow{row, row.Pack()}
	return change{apply: func(x index) error { return x.putPacked(&r.Row, r.packed) }, row: r, mustSucceed: true}
}

// endedRow makes the row of an ended operation.
func (s *Store) endedRow(rec *statefs.Record) Row {
	row := RowOf(rec)
	row.Bytes = s.owner.Footprint(rec)
	return row
}

// Stopped adds to the feed that an operation became failed_manual, once its record contains that.
// earlier is the number of its previous stop, 0 for none.
func (s *Store) Stopped(rec *statefs.Record, earlier uint64) {
	row := stopRow(rec)
	row.EarlierStop = earlier
	s.publish(row)
}

// Sync makes the index durable. Until then, nothing may be deleted from which it could be brought
// up to date.
func (w *writer) Sync(ctx context.Context) error { return w.do(ctx, change{sync: true}) }

// CaughtUp marks that all ends from before the start have been passed to Ended. Queries are refused
// until those are in the index: otherwise a consumer of the feed could continue after a higher
// number, and never see an earlier end with a lower one.
func (w *writer) CaughtUp() { w.enqueue(change{caughtUp: true, mustSucceed: true}) }

// Built returns a channel that is closed when the index is complete.
func (w *writer) Built() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.built
}

// unapplied returns the rows on their way into the index for which is returns true. A transaction that begins later has
// the rows that were applied before. The error says that lists cannot be answered.
func (w *writer) unapplied(is func(*Row) bool) (rows []*queuedRow, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, changes := range [][]change{w.writing, w.queue} {
		for i := range changes {
			if r := changes[i].row; r != nil && is(&r.Row) {
				rows = append(rows, r)
			}
		}
	}
	return rows, w.readyLocked()
}

// isEnd reports whether the row is that of an ended operation.
func (r *Row) isEnd() bool { return !r.NeedsPerson }

// Find returns the row of an ended operation, and false if its end is neither in the index nor on the way into it.
func (s *Store) Find(id statefs.ID) (r Row, has bool, err error) {
	// What is there can be found while lists are not ready.
	unapplied, _ := s.unapplied(func(late *Row) bool { return late.isEnd() && late.ID == id })
	err = s.view(func(x index) error {
		if r, has, err = x.find(id); has || err != nil || x.gone.Get(keyOf(id)) != nil {
			return err
		}
		if has = len(unapplied) > 0; has {
			r = unapplied[0].Row
		}
		return nil
	})
	return r, has, err
}
