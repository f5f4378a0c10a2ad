package submit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
)

// round is one call of [Intake.Submit].
type round struct {
	in      *Intake
	now     time.Time
	entries []entry
	drafts  []*statefs.Record
	keys    []statefs.KeyClaim
}

// entry is one submit of a round.
type entry struct {
	request    *Request
	submission statefs.Submission
	hash       string // hash of the fields that make it equal to others
	paramsHash string // hash of all parameters, for its idempotency key
	key        string // the claim text of the idempotency key; "" without one
	draft      *statefs.Record
	outcome    Outcome
}

func (e *entry) onHit() catalog.OnHit {
	if e.request.ForceNew {
		return catalog.HitOff
	}
	return e.request.Definition.Unique.OnHit
}

// prepare makes the submission of a request and validates it.
func (r *round) prepare(i int, q *Request) error {
	submission, err := Build(q.Definition, q.Params, q.Options, r.now)
	if err != nil {
		return err
	}
	for _, id := range q.Options.After {
		if _, err := statefs.ReadSubmitted(r.in.config.Tree, id); errors.Is(err, fs.ErrNotExist) {
			return wrong(optionAfter, "there is no operation '%s', or it was deleted", id)
		} else if err != nil {
			return err
		}
	}
	submission.CreatedBy, submission.RetryOf, submission.FailedItems = q.By, q.RetryOf, q.FailedItems
	if q.Steps != nil {
		submission.Steps, submission.Phase = q.Steps, q.Definition.Phase(q.Steps)
	}
	if r.in.config.Total != nil {
		submission.Total = r.in.config.Total(q.Definition, q.Params)
	}
	e := &r.entries[i]
	e.request, e.submission = q, submission
	e.hash = statefs.RequestHash(submission.Group, submission.Job, submission.CanonicalParams)
	e.key = claimedKey(q.Scope, submission.IdempotencyKey)
	e.paramsHash = statefs.RequestHash(submission.Group, submission.Job, string(submission.Params))
	return nil
}

// claimedKey returns the claim text of an idempotency key. A line break separates key and scope, because keys
// contain none.
func claimedKey(scope, key string) string {
	if scope == "" || key == "" {
		return key
	}
	return scope + "\n" + key
}

// sums returns the claims of the round without duplicates.
func (r *round) sums() []hashPrefix {
	sums := make(map[hashPrefix]bool)
	for i := range r.entries {
		e := &r.entries[i]
		if s, ok := hashPrefixOf(e.hash); ok && e.onHit() != catalog.HitOff {
			sums[s] = true
		}
		if e.key != "" {
			sums[keyPrefix(e.key)] = true
		}
	}
	return slices.Collect(maps.Keys(sums))
}

// carryOut decides every entry and then writes all new operations at once.
func (r *round) carryOut() ([]Outcome, error) {
	if err := r.prepareAll(); err != nil {
		r.in.config.Tree.Discard(r.drafts...)
		return nil, err
	}
	if err := r.write(); err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, len(r.entries))
	for i := range r.entries {
		e := &r.entries[i]
		if outcomes[i] = e.outcome; e.outcome.New {
			continue
		}
		if err := r.in.ensureDurable(e.outcome.Record.ID); err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

// prepareAll decides every entry, so that anything that may be refused is refused before the first write.
func (r *round) prepareAll() error {
	for i := range r.entries {
		if err := r.decide(i); err != nil {
			return entryError(i, len(r.entries), err)
		}
	}
	return r.admit()
}

// decide finds the existing operation of an entry, or drafts a new one.
func (r *round) decide(i int) error {
	e := &r.entries[i]
	if known, err := r.findByKey(i); known || err != nil {
		return err
	}
	if e.onHit() != catalog.HitOff {
		if known, err := r.findByHash(i); known || err != nil {
			return err
		}
	}
	draft, err := r.in.config.Tree.Draft(e.submission)
	if err != nil {
		return err
	}
	e.draft, e.outcome = draft, Outcome{Record: draft, State: draft.Status, New: true}
	r.drafts = append(r.drafts, draft)
	r.claim(e)
	return nil
}

// claim schedules the write of the idempotency key of an entry.
func (r *round) claim(e *entry) {
	if e.key != "" {
		r.keys = append(r.keys, statefs.KeyClaim{Key: e.key, ID: e.outcome.Record.ID, RequestHash: e.paramsHash, At: r.now})
	}
}

// findByKey finds the operation of the idempotency key of an entry.
func (r *round) findByKey(i int) (bool, error) {
	e := &r.entries[i]
	if e.key == "" {
		return false, nil
	}
	for earlier := range r.entries[:i] {
		if d := &r.entries[earlier]; d.key == e.key {
			return e.useClaim(d.paramsHash, d.outcome)
		}
	}
	outcome, paramsHash, err := r.in.findClaimed(e.key, r.in.KeysSince())
	if err != nil || outcome.Record == nil {
		return false, err
	}
	return e.useClaim(paramsHash, outcome)
}

// useClaim uses the operation of the entry's idempotency key. paramsHash is that of the submit which claimed the key.
func (e *entry) useClaim(paramsHash string, outcome Outcome) (bool, error) {
	if paramsHash != e.paramsHash {
		return false, &KeyReusedError{e.submission.IdempotencyKey, outcome.Record.ID}
	}
	outcome.New = false
	e.outcome = outcome
	return true, nil
}

// FindByKey returns the operation that a submit with an idempotency key in the empty scope returned at or
// after a time, whatever its parameters and however old the key; no record if there is none. It serves
// callers that make an operation exactly once although its parameters may have changed since.
func (in *Intake) FindByKey(ctx context.Context, key string, since time.Time) (Outcome, error) {
	select {
	case <-in.ready:
	case <-ctx.Done():
		return Outcome{}, context.Cause(ctx)
	}
	outcome, _, err := in.findClaimed(key, since)
	if err != nil || outcome.Record == nil {
		return Outcome{}, err
	}
	return outcome, in.ensureDurable(outcome.Record.ID)
}

// findClaimed returns the operation of a valid claim of an idempotency key, and the hash of the parameters that claimed
// it; no record if there is none.
func (in *Intake) findClaimed(key string, since time.Time) (o Outcome, paramsHash string, err error) {
	claim, err := in.config.Tree.Keys.Find(key, since)
	if errors.Is(err, fs.ErrNotExist) {
		return o, "", nil
	}
	if err != nil {
		return o, "", err
	}
	o, err = in.readClaimed(claim.ID)
	return o, claim.RequestHash, err
}

// readClaimed returns the operation of a claim, live or finished; no record if there is none because its
// submit was interrupted or it was deleted.
func (in *Intake) readClaimed(id statefs.ID) (Outcome, error) {
	rec, err := in.config.Tree.ReadRecord(id)
	if errors.Is(err, fs.ErrNotExist) {
		return Outcome{}, nil
	}
	if err != nil {
		return Outcome{}, err
	}
	if n := len(rec.Transitions); rec.Status == statefs.Cancelled && rec.Starts == 0 && n > 0 &&
		rec.Transitions[n-1].Cause == statefs.CauseMarkerMissing {
		return Outcome{}, nil // interrupted between record and marker; no client got it as an answer
	}
	state, err := in.config.Tree.State(id)
	if errors.Is(err, statefs.ErrNotLive) {
		if rec, err = in.config.Tree.ReadRecord(id); errors.Is(err, fs.ErrNotExist) {
			return Outcome{}, nil
		}
		if err != nil || !rec.Status.Terminal() { // an interrupted submit that is not yet removed has no marker either
			return Outcome{}, err
		}
		state = rec.Status
	}
	return Outcome{Record: rec, State: state}, err
}

// findByHash finds the equal live operation and applies on_hit of the job.
func (r *round) findByHash(i int) (bool, error) {
	e := &r.entries[i]
	found, err := r.in.liveByHash(e.hash)
	if err != nil {
		return false, err
	}
	for _, d := range r.entries[:i] { // of this round, not yet on disk
		if d.draft != nil && d.hash == e.hash {
			found = append(found, d.outcome)
		}
	}
	if len(found) == 0 {
		return false, nil
	}
	hit := found[0]
	switch e.onHit() {
	case catalog.HitReject:
		return false, &ConflictError{hit.Record.ID}
	case catalog.HitNext:
		begun := 0
		for _, o := range found {
			if willStart(o) {
				hit = o
			} else {
				begun++
			}
		}
		if begun == len(found) {
			return false, r.waitForRunning(e, found)
		}
	case catalog.HitReturn, catalog.HitOff:
	}
	hit.New = false
	e.outcome = hit
	r.claim(e)
	return true, nil
}

// willStart reports whether an operation has not started, or will start again without a person.
func willStart(o Outcome) bool {
	return o.State != statefs.Running && (o.State != statefs.Paused || o.Record.Starts == 0)
}

// waitForRunning makes an entry wait for the end of the running equal operations, whatever the capacity of
// the lane.
func (r *round) waitForRunning(e *entry, running []Outcome) error {
	if e.submission.Require == statefs.RequireSuccess {
		return wrong(optionRequire,
			"'%s' cannot be had here: operation '%s' does the same, and the operation that follows it (unique: on_hit: next) waits for its end", statefs.RequireSuccess, running[0].Record.ID)
	}
	e.submission.Require = statefs.RequireEnd
	for _, o := range running {
		e.submission.After = append(slices.Clip(e.submission.After), o.Record.ID)
	}
	return nil
}

// admit calls Admit for the new operations.
func (r *round) admit() error {
	fresh := make([]*statefs.Record, 0, len(r.drafts))
	for i := range r.entries {
		if e := &r.entries[i]; e.draft != nil && !e.request.SkipAdmission {
			fresh = append(fresh, e.draft)
		}
	}
	if r.in.config.Admit == nil || len(fresh) == 0 {
		return nil
	}
	return r.in.config.Admit(fresh)
}

// write writes the new operations. The claims of keys come first, so that no operation can end without a
// trace of its key.
func (r *round) write() error {
	if err := r.in.config.Tree.Keys.Claim(r.keys...); err != nil {
		r.in.config.Tree.Discard(r.drafts...)
		return err
	}
	if len(r.drafts) == 0 {
		return nil
	}
	// Add them before they become visible, so that the daemon's report of their end comes later.
	for _, rec := range r.drafts {
		s, _ := hashPrefixOf(rec.RequestHash)
		r.in.dedup.add(s, rec.ID)
	}
	err := r.in.config.Tree.Publish(r.drafts...)
	if _, part := errors.AsType[*statefs.PartialPublishError](err); err != nil && !part {
		for _, rec := range r.drafts {
			r.in.Forget(rec)
		}
	}
	if err != nil {
		s := r.drafts[0]
		return fmt.Errorf("submit %s/%s: %w", s.Group, s.Job, err)
	}
	for i := range r.entries {
		if e := &r.entries[i]; e.outcome.New {
			e.outcome.State = e.draft.Status // it may have started
		}
	}
	return nil
}
