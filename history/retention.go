package history

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Retention says how long what has ended is kept. Zero means without a limit.
type Retention struct {
	// Age is counted from the end; FailedAge is for operations that failed.
	Age, FailedAge time.Duration
	// Bytes and Count bound the whole history; the oldest ends go first.
	Bytes int64
	Count int
}

// Limits reports whether anything is ever deleted.
func (r Retention) Limits() bool { return r != Retention{} }

// Interval is how often it makes sense to look for what is too old.
func (r Retention) Interval() time.Duration {
	shortest := time.Hour
	for _, age := range []time.Duration{r.Age, r.FailedAge} {
		if age > 0 {
			shortest = min(shortest, age/100)
		}
	}
	return shortest
}

// Victim is an operation that is to be deleted.
type Victim struct {
	ID     statefs.ID `json:"id"`
	Reason string     `json:"reason"`
	Bytes  int64      `json:"bytes"`
}

// The reasons to delete.
const (
	reasonAge   = "age"
	reasonCount = "count"
	reasonBytes = "bytes"
)

// Plan returns what the retention deletes now, the oldest ends first. It changes nothing.
func (s *Store) Plan(ctx context.Context, keep Retention, guards Guards, now time.Time) (victims []Victim, err error) {
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	if !keep.Limits() {
		return nil, nil
	}
	err = s.view(func(x index) error {
		p := plan{ctx: ctx, index: x, keep: keep, guards: guards, now: now, chosen: make(map[statefs.ID]bool)}
		if err := p.aged(); err != nil {
			return err
		}
		if err := p.excess(); err != nil {
			return err
		}
		victims = p.victims
		return nil
	})
	return victims, err
}

// Prune deletes what Plan says, and returns what it deleted. A large history takes a while, in which somebody may pin or retry what was
// chosen: look is asked for the guards again and again.
func (s *Store) Prune(ctx context.Context, keep Retention, look func() (Guards, error), now time.Time) (pruned []Victim, err error) {
	guards, err := look()
	if err != nil {
		return nil, err
	}
	victims, err := s.Plan(ctx, keep, guards, now)
	if err != nil || len(victims) == 0 {
		return nil, err
	}
	chosen := make(map[statefs.ID]bool, len(victims))
	for _, v := range victims {
		chosen[v.ID] = true
	}
	for part := range slices.Chunk(victims, s.pruneAtOnce) {
		gone, err := s.prunePart(ctx, part, chosen, look)
		if err != nil {
			return pruned, fmt.Errorf("prune the history: %w", err)
		}
		pruned = append(pruned, gone...)
	}
	return pruned, nil
}

// prunePart deletes some of what was chosen, unless there is a reason by now to keep it, which takes it out of chosen.
func (s *Store) prunePart(ctx context.Context, part []Victim, chosen map[statefs.ID]bool, look func() (Guards, error)) (gone []Victim, err error) {
	guards, err := look()
	if err != nil {
		return nil, err
	}
	err = s.do(ctx, change{apply: func(x index) error {
		gone = nil
		for _, v := range slices.Backward(part) { // what retries another one comes before it
			r, there, err := x.find(v.ID)
			if err != nil {
				return err
			}
			if !there || guards.held(x, &r, chosen) != "" {
				delete(chosen, v.ID)
				continue
			}
			if err := x.doom(v.ID); err != nil {
				return err
			}
			gone = append(gone, v)
		}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	slices.Reverse(gone)
	ids := make([]statefs.ID, len(gone))
	for i, v := range gone {
		ids[i] = v.ID
	}
	return gone, s.deleteFiles(ctx, ids)
}

// plan chooses what to delete.
type plan struct {
	ctx context.Context //nolint:containedctx // it lives as long as one call
	index
	keep    Retention
	guards  Guards
	now     time.Time
	chosen  map[statefs.ID]bool
	victims []Victim
	bytes   int64
}

// limit returns the time before which an operation with a status must have ended to be too old; 0 when it never is.
func (p *plan) limit(status []byte) int64 {
	age := p.keep.Age
	if statefs.State(status) == statefs.Failed {
		age = p.keep.FailedAge
	}
	if age == 0 {
		return 0
	}
	return p.now.Add(-age).UnixNano()
}

// aged chooses what is too old. Days in which nothing can be are passed over.
func (p *plan) aged() error {
	var spans []span
	err := p.eachCount(func(d dims, c count) {
		if c.minEnded < p.limit(d.status) {
			spans = append(spans, span{c.minCreated, c.maxCreated})
		}
	})
	if err != nil {
		return err
	}
	var old []Row
	for _, s := range merge(spans) {
		cursor := p.created.Cursor()
		last := timeKey(s.to+1, nil)
		for key, number := cursor.Seek(timeKey(s.from, nil)); key != nil && bytes.Compare(key, last) < 0; key, number = cursor.Next() {
			if p.ctx.Err() != nil {
				return p.ctx.Err()
			}
			r, err := Packed(p.rows.Get(number)).parse()
			if err != nil {
				return err
			}
			if r.finished >= p.limit(r.status) || r.flags&flagPinned != 0 {
				continue
			}
			row, err := r.row()
			if err != nil {
				return err
			}
			row.Params = ""
			old = append(old, row)
		}
	}
	// The newest first, so that what retries another one goes before it.
	slices.SortFunc(old, func(a, b Row) int { return sign(a.Number < b.Number) })
	for i := range old {
		p.choose(&old[i], reasonAge)
	}
	slices.Reverse(p.victims)
	return nil
}

// choose makes an operation a victim, unless it is kept.
func (p *plan) choose(r *Row, reason string) {
	if p.chosen[r.ID] || p.guards.held(p.index, r, p.chosen) != "" {
		return
	}
	p.chosen[r.ID] = true
	p.victims = append(p.victims, Victim{r.ID, reason, r.Bytes})
	p.bytes += r.Bytes
}

// excess chooses what is too much, the oldest ends first.
func (p *plan) excess() error {
	var n, size int64
	if err := p.eachCount(func(_ dims, c count) { n, size = n+c.n, size+c.bytes }); err != nil {
		return err
	}
	tooMany := func() bool { return p.keep.Count > 0 && n-int64(len(p.victims)) > int64(p.keep.Count) }
	tooLarge := func() bool { return p.keep.Bytes > 0 && size-p.bytes > p.keep.Bytes }
	cursor := p.rows.Cursor()
	for key, value := cursor.First(); key != nil && (tooMany() || tooLarge()); key, value = cursor.Next() {
		if p.ctx.Err() != nil {
			return p.ctx.Err()
		}
		r, err := Packed(value).parse()
		if err != nil {
			return err
		}
		if r.flags&(flagNeedsPerson|flagPinned) != 0 {
			continue
		}
		row, err := r.row()
		if err != nil {
			return err
		}
		reason := reasonBytes
		if tooMany() {
			reason = reasonCount
		}
		p.choose(&row, reason)
	}
	return nil
}
