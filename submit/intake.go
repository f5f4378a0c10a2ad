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
	"github.com/jobdir/jobdir/steps"
)

// DefaultKeyAge is how long an idempotency key names its operation.
const DefaultKeyAge = 24 * time.Hour

// Config says how submits are taken in. Tree is needed.
type Config struct {
	Tree *statefs.Tree
	// KeyAge is how long an idempotency key names its operation, also after that has ended. Default [DefaultKeyAge].
	KeyAge time.Duration
	// Total returns the number of items of an operation where it is known at submit; nil when it never is.
	Total func(*catalog.Definition, catalog.Params) *int64
	// Admit is asked before new operations are made, all of one list at once; an error, such as a [*BusyError], refuses them. nil: all
	// are taken. It is not asked when an operation that is there already is the answer.
	Admit func([]statefs.Submission) error
}

// BusyError says that nothing new is taken at the moment.
type BusyError struct {
	Text string
	// Full says that there is too much already, false that somebody has closed the door.
	Full bool
	// After is when to ask again; 0 when nobody knows.
	After time.Duration
}

func (e *BusyError) Error() string { return e.Text }

// ConflictError says that an equal operation is there and the job wants no second one.
type ConflictError struct{ ID statefs.ID }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("Operation '%s' does the same and has not ended; the job takes no second one (unique: on_hit: reject)", e.ID)
}

// KeyReusedError says that an idempotency key was used for something else.
type KeyReusedError struct {
	Key string
	ID  statefs.ID
}

func (e *KeyReusedError) Error() string {
	return fmt.Sprintf("The idempotency key %s names operation '%s', which has another job or other parameters: use a new key", quote(e.Key), e.ID)
}

// EntryError says which submit of a list is wrong.
type EntryError struct {
	Index int // from 0
	Err   error
}

func (e *EntryError) Error() string { return fmt.Sprintf("entry %d: %v", e.Index, e.Err) }

func (e *EntryError) Unwrap() error { return e.Err }

// Request is one submit: a job, its parameters and the options.
type Request struct {
	Definition *catalog.Definition
	Params     catalog.Params
	Options    Options
	// By says who asks.
	By string
	// Scope is whose idempotency keys those of the options are: the same key in another scope is another one. It has no line break; "" is a
	// scope too.
	Scope string
	// Owed is what accepted work has promised: Admit is not asked.
	Owed bool
	// Fresh makes a new operation even when an equal one is there.
	Fresh bool
	// RetryOf and FailedItems are those of [statefs.Submission].
	RetryOf     *statefs.ID
	FailedItems bool
	// Steps take the place of those with which the job begins; nil for none.
	Steps []steps.Step
}

// Outcome is the operation that a submit came to.
type Outcome struct {
	Record *statefs.Record
	State  statefs.State
	// New says that this submit made it.
	New bool
}

// Intake makes operations of submits, and gives the one that is there already to a submit that asks for the same again. The record of a
// live operation is the lock: what the intake has in memory only says where to look, and is told by the daemon ([Intake.Note],
// [Intake.Forget]). All submits of a process go through one intake; its methods are safe for concurrent use.
//
// A submit goes this way: claim the hash and the key, look for an equal live operation, write the claim of the key, then the record and the
// marker, sync, give the claims back. Equal submits wait for each other and no others do.
type Intake struct {
	config Config
	live   *live
	claims claims
	ready  chan struct{}
	once   sync.Once
}

// NewIntake makes an intake whose submits wait until [Intake.Ready].
func NewIntake(c Config) *Intake {
	if c.KeyAge == 0 {
		c.KeyAge = DefaultKeyAge
	}
	return &Intake{config: c, live: newLive(), ready: make(chan struct{})}
}

// Ready says that every live operation was noted.
func (in *Intake) Ready() { in.once.Do(func() { close(in.ready) }) }

// Note tells of a live operation that the daemon has in hand, whoever submitted it.
func (in *Intake) Note(rec *statefs.Record) {
	in.live.see(rec.ID)
	s, ok := sumOf(rec.RequestHash)
	if !ok || !in.live.add(s, rec.ID) {
		return
	}
	select {
	case <-in.ready:
		in.live.unsettle(rec.ID) // another process has submitted it, and may not have synced it yet
	default:
	}
}

// Forget tells that an operation has ended.
func (in *Intake) Forget(rec *statefs.Record) {
	if s, ok := sumOf(rec.RequestHash); ok {
		in.live.remove(s, rec.ID)
	}
}

// Unseen returns the operations that were submitted through the intake, whose submit may have been answered, and that neither [Intake.Note] nor
// [Intake.Forget] has told of: the daemon sees one within milliseconds. One that is not live must be told with [Intake.Vanished].
func (in *Intake) Unseen() []statefs.ID { return in.live.allUnseen() }

// Vanished tells that an operation is not live any more and that the daemon may never have seen it, since somebody removed its marker at once.
func (in *Intake) Vanished(id statefs.ID) { in.live.see(id) }

// KeysSince is the time of the oldest claim of an idempotency key that counts.
func (in *Intake) KeysSince() time.Time { return in.config.Tree.Now().Add(-in.config.KeyAge) }

// Submit takes in submits, all of them or none, and returns the operation of each, in their order, when all are as durable as the storage
// promises. The error is an [*EntryError] when it is about one of several.
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
	for busy := in.claims.take(sums); busy != nil; busy = in.claims.take(sums) {
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	defer in.claims.giveBack(sums)
	return round.carryOut()
}

func entryError(i, count int, err error) error {
	if count == 1 {
		return err
	}
	return &EntryError{i, err}
}

// keySum is the claim of an idempotency key; those of request hashes are no hashes of such a text.
func keySum(key string) sum {
	full := sha256.Sum256([]byte("idempotency key\x00" + key))
	return sum(full[:len(sum{})])
}

// blocks tells whether an operation in this state is the answer to an equal submit. Ended ones and those that wait for a person are not.
func blocks(state statefs.State) bool {
	switch state {
	case statefs.Scheduled, statefs.Queued, statefs.Running, statefs.Paused, statefs.FailedRetryable:
		return true
	case statefs.WaitingApproval, statefs.FailedManual, statefs.Trailing, statefs.Completed, statefs.Cancelled, statefs.Failed:
	}
	return false
}

// find returns the live operations with a request hash that block, the oldest first.
func (in *Intake) find(requestHash string) ([]Outcome, error) {
	s, _ := sumOf(requestHash)
	var found []Outcome
	for _, id := range in.live.all(s) {
		o, err := in.look(id)
		if errors.Is(err, statefs.ErrNotLive) || errors.Is(err, fs.ErrNotExist) {
			continue // it has just ended
		}
		if err != nil {
			return nil, err
		}
		if o.Record.RequestHash == requestHash && blocks(o.State) && !o.Record.Status.Terminal() {
			found = append(found, o)
		}
	}
	return found, nil
}

// look reads an operation that has a marker.
func (in *Intake) look(id statefs.ID) (Outcome, error) {
	state, err := in.config.Tree.State(id)
	if err != nil {
		return Outcome{}, err
	}
	rec, err := in.config.Tree.ReadRecord(id)
	return Outcome{Record: rec, State: state}, err
}

// settle returns when an operation that is the answer is durable.
func (in *Intake) settle(id statefs.ID) error {
	if !in.live.isUnsettled(id) {
		return nil
	}
	if err := in.config.Tree.Settle(id); err != nil {
		return err
	}
	in.live.settled(id)
	return nil
}
