package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/jobdir/jobdir/statefs"
)

// FileName is the name of the index in the storage directory.
const FileName = "history.db"

// Store is the index of what has ended. Run writes it; every other method may be called by many goroutines.
type Store struct {
	owner *statefs.Owner
	log   *slog.Logger
	path  string
	// pruneAtOnce is how many operations are deleted between two looks at the reasons to keep them.
	pruneAtOnce int

	dbMu sync.RWMutex // held for writing while db is replaced
	db   *bolt.DB

	mu       sync.Mutex // guards what follows
	queue    []change
	wake     chan struct{} // holds a token when there is something to do
	building bool          // the index does not hold everything yet
	caughtUp bool          // what ended before the start is in the index
	failed   error         // why the index cannot be written
	built    chan struct{} // closed when it holds everything; made anew when building begins after that
	rebuild  bool          // Run must begin to build
	reading  reading       // how far building is

	numbers numbers
	clean   bool // the file says that it is whole; belongs to Run once that is called
	ended   bool // Run has returned
}

// Live is an operation that lives, as its daemon has it in memory.
type Live struct {
	ID    statefs.ID
	State statefs.State
	Row   Packed
}

// change is something to do in a transaction of the writer.
type change struct {
	apply func(index) error
	// number is published when the change is in the index; 0: none.
	number uint64
	// keep says that it is tried again until it succeeds: it is what the index must hold.
	keep bool
	// sync makes the whole file durable.
	sync bool
	// complete says that every record has been read; it needs sync.
	complete bool
	// caughtUp says that what was enqueued before ended before the start.
	caughtUp bool
	// done gets the outcome, unless it is nil. It has room for it.
	done chan error
}

// Open opens the index of a storage, and makes it when there is none. An index that cannot be trusted is emptied; Run fills it
// again. Close releases it.
func Open(owner *statefs.Owner, logger *slog.Logger) (*Store, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		owner: owner, log: logger, path: filepath.Join(owner.Dir(), FileName), pruneAtOnce: 10 * buildBatch,
		wake: make(chan struct{}, 1), built: make(chan struct{}),
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
	// tryAgain is when something is tried again that the disk refused.
	tryAgain = time.Second
	// gather is the least time between the beginnings of two transactions: what ends meanwhile shares the next one. A transaction costs as
	// much for one change as for ten.
	gather = 4 * time.Millisecond
)

// Run writes what ended into the index until ctx ends, and then what still waits. It always returns nil: an index that cannot be
// written makes questions unanswerable, and nothing else.
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
		batch := s.take()
		if len(batch) > 0 {
			began := time.Now()
			ok := s.write(batch)
			rest := gather - time.Since(began)
			if !ok {
				rest = tryAgain
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
		select {
		case <-s.wake:
		case <-ctx.Done():
			stop()
			builder.Wait()
			s.close(s.take())
			return nil
		}
	}
}

// close writes what came last and says in the file that it is whole.
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

func (c *change) answer(err error) {
	if c.done != nil {
		c.done <- err
	}
}

// enqueue hands changes to the writer.
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
	s.ring()
}

func (s *Store) ring() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Store) take() []change {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := s.queue
	s.queue = nil
	return batch
}

func (s *Store) takeRebuild() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.rebuild
	s.rebuild = false
	return due
}

// do has a change made and returns its outcome.
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

// write makes the changes in one transaction. It reports false when the disk refuses: then those that must not be lost wait again.
func (s *Store) write(batch []change) bool {
	err := s.transact(batch)
	if isDamage(err) {
		s.log.Error("the index of the history is damaged; it is built again", "file", s.path, "error", err)
		if err = s.startOver(); err == nil {
			err = s.transact(batch)
		}
	}
	s.note(err)
	if err != nil {
		s.keep(batch, err)
		return false
	}
	s.numbers.publish(batch)
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
	s.sayBuiltLocked()
}

// sayBuiltLocked closes built when the index holds everything.
func (s *Store) sayBuiltLocked() {
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

// note remembers whether the index can be written, and says when that changes.
func (s *Store) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.failed == nil {
		s.log.Error("the index of the history cannot be written; lists and the feed wait until it can", "file", s.path, "error", err)
	}
	if err == nil && s.failed != nil {
		s.log.Info("the index of the history can be written again", "file", s.path)
	}
	s.failed = err
}

// keep puts what must not be lost back to the front of the queue.
func (s *Store) keep(batch []change, err error) {
	var again []change
	for i := range batch {
		if batch[i].keep {
			again = append(again, batch[i])
		} else {
			batch[i].answer(fmt.Errorf("%w (%w)", ErrNotReady, err))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(again, s.queue...)
	s.ring()
}

// Ended enters an operation whose terminal record is durable, and publishes its number.
func (s *Store) Ended(rec *statefs.Record) {
	row := RowOf(rec)
	row.Bytes = s.owner.Footprint(rec)
	s.enqueue(change{apply: func(x index) error { return x.put(&row) }, number: row.Number, keep: true})
}

// Stopped enters into the feed that an operation became failed_manual, once its record says so. earlier is the number under which
// it did before, 0 for never.
func (s *Store) Stopped(rec *statefs.Record, earlier uint64) {
	row := stopRow(rec)
	row.Earlier = earlier
	s.enqueue(change{apply: func(x index) error { return x.put(&row) }, number: row.Number, keep: true})
}

// Sync makes durable what the index has: only then may anything be forgotten from which it could be brought up to date.
func (s *Store) Sync(ctx context.Context) error { return s.do(ctx, change{sync: true}) }

// CaughtUp says that what ended before the start has been handed to Ended. Nothing is answered before that is in the index: a consumer of the feed
// goes on after the highest number that it was told of, and would never hear of an end of before with a lower one.
func (s *Store) CaughtUp() { s.enqueue(change{caughtUp: true, keep: true}) }

// Built returns a channel that is closed when the index holds everything.
func (s *Store) Built() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.built
}

// settle returns when what was entered before is in the index.
func (s *Store) settle(ctx context.Context) error {
	if err := s.Ready(); err != nil {
		return err
	}
	return s.do(ctx, change{})
}

// Has reports whether the end of an operation is in the index.
func (s *Store) Has(id statefs.ID) (has bool, err error) {
	err = s.view(func(x index) error { has = x.id.Get(keyOf(id)) != nil; return nil })
	return has, err
}
