package submit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	hash       string // of what makes it equal to others
	whole      string // of all parameters, for its idempotency key
	key        string // the idempotency key, as it is claimed; "" without one
	draft      *statefs.Record
	outcome    Outcome
}

func (e *entry) onHit() catalog.OnHit {
	if e.request.Fresh {
		return catalog.HitOff
	}
	return e.request.Definition.Unique.OnHit
}

// prepare makes the submission of a request, and finds what is wrong with it.
func (r *round) prepare(i int, q *Request) error {
	submission, err := Build(q.Definition, q.Params, q.Options, r.now)
	if err != nil {
		return err
	}
	for _, id := range q.Options.After {
		if _, err := r.in.config.Tree.ReadRecord(id); errors.Is(err, fs.ErrNotExist) {
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
	e.whole = statefs.RequestHash(submission.Group, submission.Job, string(submission.Params))
	return nil
}

// claimedKey is what an idempotency key is claimed by: a line break, which no key has, stands between it and whose it is.
func claimedKey(scope, key string) string {
	if scope == "" || key == "" {
		return key
	}
	return scope + "\n" + key
}

// sums are the claims that the round needs, each once.
func (r *round) sums() []sum {
	var sums []sum
	seen := make(map[sum]bool)
	add := func(s sum) {
		if !seen[s] {
			seen[s] = true
			sums = append(sums, s)
		}
	}
	for i := range r.entries {
		e := &r.entries[i]
		if s, ok := sumOf(e.hash); ok && e.onHit() != catalog.HitOff {
			add(s)
		}
		if e.key != "" {
			add(keySum(e.key))
		}
	}
	return sums
}

// carryOut decides about every entry and then writes down what is new, at once.
func (r *round) carryOut() ([]Outcome, error) {
	for i := range r.entries {
		if err := r.decide(i); err != nil {
			return nil, entryError(i, len(r.entries), err)
		}
	}
	if err := r.admit(); err != nil {
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
		if err := r.in.settle(e.outcome.Record.ID); err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

// decide finds the operation of an entry, or drafts a new one.
func (r *round) decide(i int) error {
	e := &r.entries[i]
	if known, err := r.byKey(i); known || err != nil {
		return err
	}
	if e.onHit() != catalog.HitOff {
		if known, err := r.byHash(i); known || err != nil {
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

// claim has the idempotency key of an entry written down for its operation.
func (r *round) claim(e *entry) {
	if e.key != "" {
		r.keys = append(r.keys, statefs.KeyClaim{Key: e.key, ID: e.outcome.Record.ID, RequestHash: e.whole, At: r.now})
	}
}

// byKey finds the operation that the idempotency key of an entry names.
func (r *round) byKey(i int) (bool, error) {
	e := &r.entries[i]
	if e.key == "" {
		return false, nil
	}
	for _, c := range r.keys { // of this round
		if c.Key == e.key {
			return r.keyed(e, c, r.entry(c.ID, i))
		}
	}
	claim, err := r.in.config.Tree.KeyClaim(e.key, r.in.KeysSince())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	outcome, err := r.in.named(claim.ID)
	if err != nil || outcome.Record == nil {
		return false, err
	}
	return r.keyed(e, *claim, outcome)
}

func (r *round) keyed(e *entry, c statefs.KeyClaim, outcome Outcome) (bool, error) {
	if c.RequestHash != e.whole {
		return false, &KeyReusedError{e.submission.IdempotencyKey, c.ID}
	}
	outcome.New = false
	e.outcome = outcome
	return true, nil
}

// entry returns what an earlier entry of the round came to.
func (r *round) entry(id statefs.ID, before int) Outcome {
	for i := range r.entries[:before] {
		if o := r.entries[i].outcome; o.Record.ID == id {
			return o
		}
	}
	return Outcome{}
}

// Made returns the operation that a submit with an idempotency key of no scope came to at or after a time, whatever was asked for with it and
// however old the key is; no record when there is none. It is for who is to make something once and may find the reasons changed since.
func (in *Intake) Made(ctx context.Context, key string, since time.Time) (Outcome, error) {
	select {
	case <-in.ready:
	case <-ctx.Done():
		return Outcome{}, context.Cause(ctx)
	}
	claim, err := in.config.Tree.KeyClaim(key, since)
	if errors.Is(err, fs.ErrNotExist) {
		return Outcome{}, nil
	}
	if err != nil {
		return Outcome{}, err
	}
	outcome, err := in.named(claim.ID)
	if err != nil || outcome.Record == nil {
		return Outcome{}, err
	}
	return outcome, in.settle(claim.ID)
}

// named returns the operation of a claim, live or ended; no record when there is none: its submit was cut off, or it was deleted.
func (in *Intake) named(id statefs.ID) (Outcome, error) {
	rec, err := in.config.Tree.ReadRecord(id)
	if errors.Is(err, fs.ErrNotExist) {
		return Outcome{}, nil
	}
	if err != nil {
		return Outcome{}, err
	}
	if n := len(rec.Transitions); rec.Status == statefs.Cancelled && rec.Starts == 0 && n > 0 && rec.Transitions[n-1].Cause == statefs.CauseMarkerMissing {
		return Outcome{}, nil // it was cut off between record and marker, and nobody was told of it
	}
	state, err := in.config.Tree.State(id)
	if errors.Is(err, statefs.ErrNotLive) {
		if rec, err = in.config.Tree.ReadRecord(id); errors.Is(err, fs.ErrNotExist) {
			return Outcome{}, nil
		}
		if err == nil && !rec.Status.Terminal() {
			return Outcome{}, nil // a record without a marker: cut off, and not yet cleared away
		}
		return Outcome{Record: rec, State: terminal(rec)}, err
	}
	return Outcome{Record: rec, State: state}, err
}

func terminal(rec *statefs.Record) statefs.State {
	if rec == nil {
		return ""
	}
	return rec.Status
}

// byHash finds the live operation that does the same, and does what the job says then.
func (r *round) byHash(i int) (bool, error) {
	e := &r.entries[i]
	found, err := r.in.find(e.hash)
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
			if waits(o) {
				hit = o
			} else {
				begun++
			}
		}
		if begun == len(found) {
			return false, r.follow(e, found)
		}
	case catalog.HitReturn, catalog.HitOff:
	}
	hit.New = false
	e.outcome = hit
	r.claim(e)
	return true, nil
}

// waits tells whether an operation has not begun, or will begin again by itself.
func waits(o Outcome) bool {
	return o.State != statefs.Running && (o.State != statefs.Paused || o.Record.Starts == 0)
}

// follow makes an entry the one that waits for those that run: whatever the lane has room for, it begins when they have ended.
func (r *round) follow(e *entry, running []Outcome) error {
	if e.submission.Require == statefs.RequireSuccess {
		return wrong(optionRequire, "'%s' cannot be had here: operation '%s' does the same, and the one that follows it (unique: on_hit: next) waits for its end", statefs.RequireSuccess, running[0].Record.ID)
	}
	e.submission.Require = statefs.RequireEnd
	for _, o := range running {
		e.submission.After = append(slices.Clip(e.submission.After), o.Record.ID)
	}
	return nil
}

// admit asks whether what is new may be made.
func (r *round) admit() error {
	if r.in.config.Admit == nil || len(r.drafts) == 0 {
		return nil
	}
	fresh := make([]statefs.Submission, 0, len(r.drafts))
	for i := range r.entries {
		if r.entries[i].draft != nil && !r.entries[i].request.Owed {
			fresh = append(fresh, r.entries[i].submission)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	return r.in.config.Admit(fresh)
}

// write puts what is new on disk: the claims of keys first, so that no operation can end without a trace of its key.
func (r *round) write() error {
	if err := r.in.config.Tree.ClaimKeys(r.keys...); err != nil {
		return err
	}
	if len(r.drafts) == 0 {
		return nil
	}
	// Noted before it can be seen: when the daemon tells of its end, that comes later.
	for _, rec := range r.drafts {
		s, _ := sumOf(rec.RequestHash)
		r.in.live.submit(s, rec.ID)
	}
	err := r.in.config.Tree.Publish(r.drafts...)
	if _, part := errors.AsType[*statefs.PartError](err); err != nil && !part {
		for _, rec := range r.drafts {
			r.in.Forget(rec)
		}
	}
	if err != nil {
		s := r.drafts[0]
		return fmt.Errorf("submit %s/%s: %w", s.Group, s.Job, err)
	}
	return nil
}
