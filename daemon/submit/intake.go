package submit

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/notify"
	"github.com/jobdir/jobdir/statefs/steps"
)

// DefaultKeyAge is how long an idempotency key refers to its operation.
const DefaultKeyAge = 24 * time.Hour

// Config configures an intake. Tree is required.
type Config struct {
	Tree *statefs.Tree
	// KeyAge is how long an idempotency key refers to its operation, even after the operation has ended.
	// Default [DefaultKeyAge].
	KeyAge time.Duration
	// Total returns the number of items of an operation if it is known at submit; nil if it never is.
	Total func(*catalog.Definition, catalog.Params) *int64
	// Admit is called with the drafts of new operations, once for all of a list. An error, such as a
	// [*BusyError], refuses them; nil accepts all, and they are published or discarded next. It is not
	// called for submits that get an existing operation.
	Admit func(drafts []*statefs.Record) error
}

// BusyError means that no new operations are accepted at the moment.
type BusyError struct {
	Text string
	// Full reports that too many operations wait; false, that a person closed the lane or the daemon.
	Full bool
	// RetryAfter is when to submit again; 0 if that is unknown.
	RetryAfter time.Duration
}

func (e *BusyError) Error() string { return e.Text }

// ConflictError means that an equal operation exists and the job refuses a second one.
type ConflictError struct{ ID statefs.ID }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("Operation '%s' does the same and has not ended; the job takes no second one (unique: on_hit: reject)", e.ID)
}

// KeyReusedError means that an idempotency key was used for a different submit.
type KeyReusedError struct {
	Key string
	ID  statefs.ID
}

func (e *KeyReusedError) Error() string {
	return fmt.Sprintf("The idempotency key %s names operation '%s', which has another job or other parameters: use a new key", quote(e.Key), e.ID)
}

// EntryError is the error of one submit of a list.
type EntryError struct {
	Index int // from 0
	Err   error
}

func (e *EntryError) Error() string { return fmt.Sprintf("entry %d: %v", e.Index, e.Err) }

func (e *EntryError) Unwrap() error { return e.Err }

// Refused reports whether an error of a submit is permanent: the same submit will be refused again. All other
// errors depend on the machine or the moment.
func Refused(err error) bool {
	return is[*ListError](err) || is[*OptionError](err) || is[*UnknownJobError](err) || is[*ConflictError](err) ||
		is[*KeyReusedError](err) || is[*catalog.ParamError](err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Request is one submit: a job, its parameters and the options.
type Request struct {
	Definition *catalog.Definition
	Params     catalog.Params
	Options    Options
	// By is the name of the requester.
	By string
	// Scope is the namespace of the idempotency key: the same key in two scopes is two keys. It contains no
	// line break; "" is a scope too.
	Scope string
	// SkipAdmission skips Admit, for follow-ups that accepted work has promised.
	SkipAdmission bool
	// ForceNew makes a new operation even if an equal one exists.
	ForceNew bool
	// RetryOf and FailedItems are those of [statefs.Submission].
	RetryOf     *statefs.ID
	FailedItems bool
	// Steps replace the initial steps of the job; nil keeps them.
	Steps []steps.Step
}

// Key returns the key of the operation, "" for none.
func (q *Request) Key() (string, error) {
	if q.Options.Key != nil {
		return *q.Options.Key, nil
	}
	return q.Definition.KeyFor(q.Params)
}

// Outcome is the operation that a submit returned.
type Outcome struct {
	Record *statefs.Record
	State  statefs.State
	// New reports that this submit made the operation.
	New bool
}

// Intake makes operations from submits, and returns the existing operation for a submit that repeats it. The
// record of a live operation is the lock. The index in memory only finds candidates; the daemon updates it
// with [Intake.Track] and [Intake.Forget]. All submits of a process use one intake; its methods are safe for
// concurrent use.
//
// A submit claims the hash and the key, searches an equal live operation, writes the claim of the key, then
// the record and the marker, syncs, and releases the claims. Equal submits wait for each other; other submits
// do not.
type Intake struct {
	config Config
	dedup  dedupIndex
	// unsynced has the ID of each live operation that another process submitted; it may not be durable yet.
	unsynced sync.Map
	claims   claims
	ready    chan struct{}
	once     sync.Once
}

// NewIntake makes an intake whose submits wait until [Intake.Ready].
func NewIntake(c Config) *Intake {
	if c.KeyAge == 0 {
		c.KeyAge = DefaultKeyAge
	}
	in := &Intake{config: c, ready: make(chan struct{})}
	in.dedup.one, in.dedup.more = make(map[hashPrefix]statefs.ID), make(map[hashPrefix]map[statefs.ID]bool)
	in.claims.held = make(map[hashPrefix]chan struct{})
	return in
}

// Ready reports to the intake that every live operation is tracked.
func (in *Intake) Ready() { in.once.Do(func() { close(in.ready) }) }

// Track adds a live operation that the daemon knows, whichever process submitted it.
func (in *Intake) Track(rec *statefs.Record) {
	s, ok := hashPrefixOf(rec.RequestHash)
	if !ok || !in.dedup.add(s, rec.ID) {
		return
	}
	if notify.IsClosed(in.ready) {
		in.unsynced.Store(rec.ID, true)
	}
}

// Forget removes an operation that has ended.
func (in *Intake) Forget(rec *statefs.Record) {
	in.unsynced.Delete(rec.ID)
	if s, ok := hashPrefixOf(rec.RequestHash); ok {
		in.dedup.remove(s, rec.ID)
	}
}

// KeysSince returns the time of the oldest valid claim of an idempotency key.
func (in *Intake) KeysSince() time.Time { return in.config.Tree.Now().Add(-in.config.KeyAge) }

// Submit accepts submits, all or none, and returns their operations in the same order once all are as durable
// as the storage promises. An error of one of several submits is an [*EntryError].
func (in *Intake) Submit(ctx context.Context, requests ...Request) ([]Outcome, error) {
	select {
	case <-in.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	round := round{in: in, now: in.config.Tree.Now(), entries: make([]entry, len(requests))}
	for i := range requests {
		if err := round.prepare(i, &requests[i]); err != nil {
			return nil, entryError(i, len(requests), err)
		}
	}
	sums := round.sums()
	for busy := in.claims.acquire(sums); busy != nil; busy = in.claims.acquire(sums) {
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	defer in.claims.release(sums)
	return round.carryOut()
}

func entryError(i, count int, err error) error {
	if count == 1 {
		return err
	}
	return &EntryError{i, err}
}

// keyPrefix returns the claim of an idempotency key. It cannot equal that of a request hash.
func keyPrefix(key string) hashPrefix {
	full := sha256.Sum256([]byte("idempotency key\x00" + key))
	return hashPrefix(full[:len(hashPrefix{})])
}

// blocksDuplicate reports whether an operation in this state is returned for an equal submit. Finished
// operations and operations that wait for a person are not.
func blocksDuplicate(state statefs.State) bool {
	switch state {
	case statefs.Scheduled, statefs.Queued, statefs.Running, statefs.Paused, statefs.FailedRetryable:
		return true
	case statefs.WaitingApproval, statefs.FailedManual, statefs.Trailing, statefs.Completed,
		statefs.Cancelled, statefs.Failed:
	}
	return false
}

// liveByHash returns the live operations with a request hash that block duplicates, oldest first.
func (in *Intake) liveByHash(requestHash string) ([]Outcome, error) {
	s, _ := hashPrefixOf(requestHash)
	var found []Outcome
	for _, id := range in.dedup.all(s) {
		var rec *statefs.Record
		state, err := in.config.Tree.State(id)
		if err == nil {
			rec, err = in.config.Tree.ReadRecord(id)
		}
		switch {
		case errors.Is(err, statefs.ErrNotLive), errors.Is(err, fs.ErrNotExist): // it has just ended
		case err != nil:
			return nil, err
		case rec.RequestHash == requestHash && blocksDuplicate(state) && !rec.Status.Terminal():
			found = append(found, Outcome{Record: rec, State: state})
		}
	}
	return found, nil
}

// ensureDurable returns when an existing operation is durable.
func (in *Intake) ensureDurable(id statefs.ID) error {
	if _, unsynced := in.unsynced.Load(id); !unsynced {
		return nil
	}
	if err := in.config.Tree.EnsureDurable(id); err != nil {
		return err
	}
	in.unsynced.Delete(id)
	return nil
}
