package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/jobdir/jobdir/statefs"
)

// FileName is the name of the index in the storage directory.
const FileName = "history.db"

// Store is the index of ended operations. Run writes it; every other method is safe for concurrent
// use.
type Store struct {
	owner *statefs.Owner
	log   *slog.Logger
	path  string
	// pruneAtOnce is how many operations are deleted before the guards are read again.
	pruneAtOnce int
	// deletedIDRetention is how long the ID of a deleted operation is remembered.
	deletedIDRetention time.Duration

	dbMu sync.RWMutex // held for writing while db is replaced
	db   *bolt.DB

	mu       sync.Mutex // guards the fields below
	queue    []change
	writing  bool          // changes that have left the queue are being written
	wake     chan struct{} // holds a token when there is work
	building bool          // the index is not complete yet
	caughtUp bool          // the operations that ended before the start are in the index
	failed   error         // why the index cannot be written
	built    chan struct{} // closed when the index is complete; replaced when a build begins after that
	rebuild  bool          // Run must start a build
	reading  buildProgress // progress of the build

	numbers feedNumbers
	clean   bool   // the file is marked clean; used only by Run once that is called
	sealed  uint64 // the texts of all lower numbers are indexed; used only by Run
	ended   bool   // Run has returned
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
	// number is published when the change is in the index; 0 means none.
	number uint64
	// mustSucceed makes the writer retry the change until it succeeds, because the index must
	// contain it.
	mustSucceed bool
	// sync makes the whole file durable.
	sync bool
	// complete means that every record has been read; it needs sync.
	complete bool
	// caughtUp means that the changes enqueued before it are the ends from before the start.
	caughtUp bool
	// done receives the outcome, unless it is nil. It has capacity for it.
	done chan error
}

// Open opens the index of a storage, and creates it when there is none. An index that cannot be
// trusted is emptied; Run fills it again. Close releases it.
func Open(owner *statefs.Owner, logger *slog.Logger) (*Store, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		owner: owner, log: logger, path: filepath.Join(owner.Dir(), FileName), pruneAtOnce: 10 * buildBatch,
		deletedIDRetention: minDeletedIDRetention,
		wake:               make(chan struct{}, 1), built: make(chan struct{}),
	}
	last, err := s.openFile()
	if err != nil {
		return nil, err
	}
	if err := s.numbers.begin(owner, last+1); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	return s, nil
}

// Close releases the index. Run must have returned, or never be called.
func (s *Store) Close() error {
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
	var builder sync.WaitGroup
	defer builder.Wait()
	buildCtx, stop := context.WithCancel(ctx)
	defer stop()
	builders := func() {
		if s.takeRebuild() {
			builder.Wait()
			builder.Go(func() { s.build(buildCtx) })
		}
	}
	for {
		builders()
		batch := s.takeQueue()
		if len(batch) > 0 {
			began := time.Now()
			ok := s.write(batch)
			rest := batchInterval - time.Since(began)
			switch {
			case !ok:
				rest = retryInterval
			case !slices.ContainsFunc(batch, change.writes):
				continue
			}
			select {
			case <-time.After(rest):
			case <-ctx.Done():
				if !ok {
					s.close(batch)
					return nil
				}
			}
			continue
		}
		if s.sealNext() {
			continue
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			stop()
			builder.Wait()
			s.close(s.takeQueue())
			return nil
		}
	}
}

// sealNext indexes the texts of the next segment, if it is complete. It reports whether there may
// be another one.
func (s *Store) sealNext() bool {
	last, _ := s.numbers.upTo()
	if s.Ready() != nil || last+1 < (s.sealed/segmentSize+1)*segmentSize {
		return false
	}
	before := s.sealed
	return s.write([]change{{apply: func(x index) (err error) {
		s.sealed, err = x.seal(before, last)
		return err
	}}}) && s.sealed > before
}

// close writes the last changes and marks the file as clean.
func (s *Store) close(batch []change) {
	ok := s.write(append(batch, change{sync: true}))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if !ok {
		s.log.Warn("the index of the history could not be closed; it is built again by the next start", "error", s.failed)
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

// enqueue passes changes to the writer.
func (s *Store) enqueue(changes ...change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		for i := range changes {
			changes[i].answer(ErrNotReady)
		}
		return
	}
	s.queue = append(s.queue, changes...)
	s.wakeWriter()
}

func (s *Store) wakeWriter() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Store) takeQueue() []change {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := s.queue
	s.queue, s.writing = nil, len(s.queue) > 0
	return batch
}

func (s *Store) takeRebuild() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.rebuild
	s.rebuild = false
	return due
}

// do enqueues a change and returns its outcome.
func (s *Store) do(ctx context.Context, c change) error {
	c.done = make(chan error, 1)
	s.enqueue(c)
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write applies the changes in one transaction. It returns false when that fails; changes with
// mustSucceed are then queued again.
func (s *Store) write(batch []change) bool {
	err := s.transact(batch)
	if isDamage(err) {
		s.log.Error("the index of the history is damaged; it is built again", "file", s.path, "error", err)
		if err = s.recreate(); err == nil {
			err = s.transact(batch)
		}
	}
	s.noteWriteResult(err)
	if err != nil {
		s.requeue(batch, err)
		return false
	}
	s.numbers.publishBatch(batch)
	for i := range batch {
		if batch[i].caughtUp {
			s.catchUp()
		}
		batch[i].answer(nil)
	}
	return true
}

func (s *Store) catchUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caughtUp = true
	s.signalBuiltLocked()
}

// signalBuiltLocked closes built when the index is complete.
func (s *Store) signalBuiltLocked() {
	if s.building || !s.caughtUp {
		return
	}
	select {
	case <-s.built:
	default:
		close(s.built)
	}
}

func (s *Store) transact(batch []change) error {
	var mode mode
	work := false
	for i := range batch {
		mode.synced, mode.complete = mode.synced || batch[i].sync, mode.complete || batch[i].complete
		work = work || batch[i].apply != nil
	}
	if !work {
		return s.update(mode, nil)
	}
	return s.update(mode, func(x index) error {
		for i := range batch {
			if batch[i].apply == nil {
				continue
			}
			if err := batch[i].apply(x); err != nil {
				return err
			}
		}
		return nil
	})
}

// noteWriteResult records whether the index can be written, and logs when that changes.
func (s *Store) noteWriteResult(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.failed == nil {
		s.log.Error("the index of the history cannot be written; lists and the feed wait until it can", "file",
			s.path, "error", err)
	}
	if err == nil && s.failed != nil {
		s.log.Info("the index of the history can be written again", "file", s.path)
	}
	s.failed, s.writing = err, false
}

// requeue puts the changes with mustSucceed back to the front of the queue, and answers the others
// with an error.
func (s *Store) requeue(batch []change, err error) {
	var again []change
	for i := range batch {
		if batch[i].mustSucceed {
			again = append(again, batch[i])
		} else {
			batch[i].answer(fmt.Errorf("%w (%w)", ErrNotReady, err))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(again, s.queue...)
	s.wakeWriter()
}

// Ended adds an operation whose terminal record is durable, and publishes its number.
func (s *Store) Ended(rec *statefs.Record) {
	row := RowOf(rec)
	row.Bytes = s.owner.Footprint(rec)
	s.enqueue(change{apply: func(x index) error { return x.put(&row) }, number: row.Number, mustSucceed: true})
}

// Stopped adds to the feed that an operation became failed_manual, once its record contains that.
// earlier is the number of its previous stop, 0 for none.
func (s *Store) Stopped(rec *statefs.Record, earlier uint64) {
	row := stopRow(rec)
	row.EarlierStop = earlier
	s.enqueue(change{apply: func(x index) error { return x.put(&row) }, number: row.Number, mustSucceed: true})
}

// Sync makes the index durable. Until then, nothing may be deleted from which it could be brought
// up to date.
func (s *Store) Sync(ctx context.Context) error { return s.do(ctx, change{sync: true}) }

// CaughtUp marks that all ends from before the start have been passed to Ended. Queries are refused
// until those are in the index: otherwise a consumer of the feed could continue after a higher
// number, and never see an earlier end with a lower one.
func (s *Store) CaughtUp() { s.enqueue(change{caughtUp: true, mustSucceed: true}) }

// Built returns a channel that is closed when the index is complete.
func (s *Store) Built() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.built
}

// awaitApplied returns when all changes enqueued before are in the index: at once when the writer
// is idle.
func (s *Store) awaitApplied(ctx context.Context) error {
	s.mu.Lock()
	err, pending := s.readyLocked(), s.writing || len(s.queue) > 0
	s.mu.Unlock()
	if err != nil || !pending {
		return err
	}
	return s.do(ctx, change{})
}

// Find returns the row of an ended operation, and false if its end is not in the index.
func (s *Store) Find(id statefs.ID) (r Row, has bool, err error) {
	err = s.view(func(x index) error { r, has, err = x.find(id); return err })
	return r, has, err
}
