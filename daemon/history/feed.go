package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jobdir/jobdir/statefs"
)

// feedNumbers assigns a number to each end and knows how far the feed may go. One lock guards both.
type feedNumbers struct {
	mu        sync.Mutex // guards what follows
	reserved  *statefs.Numbers
	next, end uint64
	pending   map[uint64]uint64 // assigned, and neither published nor unused, with a line before that of the end
	published uint64            // all numbers up to this one are published or unused
	advanced  chan struct{}     // closed when published grows
}

// begin starts after the numbers that earlier daemons reserved, which are in the index or unused.
// It reserves none, so that a daemon can start while the disk is full.
func (n *feedNumbers) begin(reserved *statefs.Numbers, least uint64) error {
	next, err := reserved.NextEnd()
	if err != nil {
		return err
	}
	next = max(next, least)
	n.reserved, n.next, n.end, n.published = reserved, next, next, next-1
	n.pending, n.advanced = make(map[uint64]uint64), make(chan struct{})
	return nil
}

// Number returns the number of the next end. It must be passed to Ended or Stopped with a record,
// or to Unused: the feed waits for it.
func (s *Store) Number() (uint64, error) {
	n := &s.numbers
	line, _, _ := s.owner.Journal.Reach()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == n.end {
		first, end, err := n.reserved.ReserveEnds(n.next)
		if err != nil {
			return 0, err
		}
		n.next, n.end = first, end
	}
	number := n.next
	n.next++
	n.pending[number] = line
	return number, nil
}

// hold makes a number wait for a further change of its operation, which gets a line behind the given one.
func (n *feedNumbers) hold(number, line uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending[number] = line
}

// leastLine returns a line of the journal, at most the given one, up to which all ends are published or unused.
func (n *feedNumbers) leastLine(line uint64) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, before := range n.pending {
		line = min(line, before)
	}
	return line
}

// Unused returns a number that is in no record.
func (s *Store) Unused(number uint64) { s.numbers.resolve(number) }

// resolve publishes numbers that are unused, or whose rows are in the index or on their way into it.
func (n *feedNumbers) resolve(done ...uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, number := range done {
		delete(n.pending, number)
	}
	to := n.next - 1
	for number := range n.pending { // as many as operations end at this moment
		to = min(to, number-1)
	}
	if to > n.published {
		n.published = to
		close(n.advanced)
		n.advanced = make(chan struct{})
	}
}

// upTo returns the highest number that the feed may show, and a channel that is closed when it
// grows.
func (n *feedNumbers) upTo() (uint64, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.published, n.advanced
}

// BeyondError means that a consumer has a number that this storage has not assigned.
type BeyondError struct{ After, Last uint64 }

func (e *BeyondError) Error() string {
	return fmt.Sprintf("the number %d is higher than the last one, %d: it is of another storage, "+
		"or of a later state of this one; begin again with 0", e.After, e.Last)
}

// Finished returns at most limit rows with numbers higher than after, in ascending order, and the
// number to continue after. When there are none, it waits until ctx ends. Each end appears once,
// and so does each stop for a person.
func (s *Store) Finished(ctx context.Context, after uint64, limit int) (rows []Row, last uint64, err error) {
	for {
		if err := s.Ready(); err != nil {
			return nil, 0, err
		}
		upTo, moved := s.numbers.upTo()
		if after > upTo {
			return nil, 0, &BeyondError{after, upTo}
		}
		if rows, last, err = s.between(after, upTo, limit); err != nil || len(rows) > 0 {
			return rows, last, err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, last, nil
		}
	}
}

func (s *Store) between(after, upTo uint64, limit int) (rows []Row, last uint64, err error) {
	between := func(number uint64) bool { return number > after && number <= upTo }
	unapplied, err := s.unapplied(func(r *Row) bool { return between(r.Number) })
	if err != nil {
		return nil, 0, err
	}
	err = s.view(func(x index) error {
		cursor := x.rows.Cursor()
		for key, value := cursor.Seek(numberKey(after + 1)); key != nil && between(numberOf(key)) && len(rows) <= limit; key,
			value = cursor.Next() {
			row, err := Packed(value).Unpack()
			if err != nil {
				return err
			}
			rows = append(rows, row)
		}
		for _, late := range unapplied {
			if x.rows.Get(numberKey(late.Number)) == nil && x.gone.Get(keyOf(late.ID)) == nil {
				rows = append(rows, late.Row)
			}
		}
		return nil
	})
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Number, b.Number) })
	if len(rows) <= limit {
		return rows, upTo, err
	}
	return rows[:limit], rows[limit-1].Number, err
}
