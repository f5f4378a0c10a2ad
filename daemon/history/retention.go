package history

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// Retention limits how long ended operations are kept. Zero means no limit.
type Retention struct {
	// Age is counted from the end; FailedAge applies to failed operations.
	Age, FailedAge time.Duration
	// Bytes and Count limit the whole history; the oldest ends are deleted first.
	Bytes int64
	Count int
}

// Limits reports whether any limit is set.
func (r Retention) Limits() bool { return r != Retention{} }

// Interval returns how often to search for expired operations.
func (r Retention) Interval() time.Duration {
	shortest := time.Hour
	for _, age := range []time.Duration{r.Age, r.FailedAge} {
		if age > 0 {
			shortest = min(shortest, age/100)
		}
	}
	return shortest
}

// Victim is an operation to delete.
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
	if err := s.Ready(); err != nil || !keep.Limits() {
		return nil, err
	}
	if err := s.do(ctx, change{}); err != nil { // until then an end may be missing in the index
		return nil, err
	}
	err = s.view(func(x index) error {
		p := plan{ctx: ctx, index: x, keep: keep, guards: guards, now: now, chosen: make(map[statefs.ID]bool)}
		if err := p.chooseExpired(); err != nil {
			return err
		}
		if err := p.chooseExcess(); err != nil {
			return err
		}
		victims = p.victims
		return nil
	})
	return victims, err
}

// Prune deletes what Plan returns, and returns what it deleted. That takes long for a large
// history, and operations may be pinned or retried in that time, so look is called for the present
// guards before each batch.
func (s *Store) Prune(ctx context.Context, keep Retention, look func() (Guards, error),
	now time.Time,
) (pruned []Victim, err error) {
	guards, err := look()
	if err != nil {
		return nil, err
	}
	victims, err := s.Plan(ctx, keep, guards, now)
	if err != nil || !keep.Limits() {
		return nil, err
	}
	chosen := make(map[statefs.ID]bool, len(victims))
	for _, v := range victims {
		chosen[v.ID] = true
	}
	for part := range slices.Chunk(victims, s.pruneAtOnce) {
		gone, err := s.prunePart(ctx, part, chosen, look, now)
		if err != nil {
			return pruned, fmt.Errorf("prune the history: %w", err)
		}
		pruned = append(pruned, gone...)
	}
	if err := s.pruneUnanswered(ctx); err != nil {
		return pruned, fmt.Errorf("prune the records of submits that were cut off: %w", err)
	}
	return pruned, nil
}

// prunePart deletes a batch of victims. A victim that there is now a reason to keep is removed from
// chosen.
func (s *Store) prunePart(
	ctx context.Context, part []Victim, chosen map[statefs.ID]bool, look func() (Guards, error), now time.Time,
) (gone []Victim, err error) {
	guards, err := look()
	if err != nil {
		return nil, err
	}
	err = s.do(ctx, change{apply: func(x index) error {
		gone = nil
		for _, v := range slices.Backward(part) { // a retry comes before the operation it retries
			r, there, err := x.find(v.ID)
			if err != nil {
				return err
			}
			if !there || guards.reasonToKeep(x, &r, chosen) != "" {
				delete(chosen, v.ID)
				continue
			}
			if err := x.scheduleDeletion(v.ID, now, s.deletedIDRetention); err != nil {
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

// limit returns the time before which an operation with this status must have ended to be expired;
// 0 means never.
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

// chooseExpired chooses expired operations. It skips times without any.
func (p *plan) chooseExpired() error {
	var spans []span
	err := p.eachCounters(func(d dimensions, c counters) {
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
		for key, number := cursor.Seek(timeKey(s.from, nil)); key != nil && bytes.Compare(key, last) < 0; key,
			number = cursor.Next() {
			if p.ctx.Err() != nil {
				return p.ctx.Err()
			}
			r, err := Packed(p.rows.Get(number)).parse()
			if err == nil && (r.finished >= p.limit(r.status) || r.flags&flagPinned != 0) {
				continue
			}
			row, err := p.row(number)
			if err != nil {
				return err
			}
			row.Params = ""
			old = append(old, row)
		}
	}
	// The newest first, so that a retry is chosen before the operation that it retries.
	slices.SortFunc(old, func(a, b Row) int { return cmp.Compare(b.Number, a.Number) })
	for i := range old {
		p.choose(&old[i], reasonAge)
	}
	slices.Reverse(p.victims)
	return nil
}

// choose makes an operation a victim, unless there is a reason to keep it.
func (p *plan) choose(r *Row, reason string) {
	if p.chosen[r.ID] || p.guards.reasonToKeep(p.index, r, p.chosen) != "" {
		return
	}
	p.chosen[r.ID] = true
	p.victims = append(p.victims, Victim{r.ID, reason, r.Bytes})
	p.bytes += r.Bytes
}

// chooseExcess chooses operations above the limits of count and bytes, the oldest ends first.
func (p *plan) chooseExcess() error {
	var n, size int64
	if err := p.eachCounters(func(_ dimensions, c counters) { n, size = n+c.n, size+c.bytes }); err != nil {
		return err
	}
	tooMany := func() bool { return p.keep.Count > 0 && n-int64(len(p.victims)) > int64(p.keep.Count) }
	tooLarge := func() bool { return p.keep.Bytes > 0 && size-p.bytes > p.keep.Bytes }
	cursor := p.rows.Cursor()
	for key, value := cursor.First(); key != nil && (tooMany() || tooLarge()); key, value = cursor.Next() {
		if p.ctx.Err() != nil {
			return p.ctx.Err()
		}
		row, err := Packed(value).Unpack()
		if err != nil {
			return err
		}
		if row.NeedsPerson || row.Pinned {
			continue
		}
		reason := reasonBytes
		if tooMany() {
			reason = reasonCount
		}
		p.choose(&row, reason)
	}
	return nil
}
