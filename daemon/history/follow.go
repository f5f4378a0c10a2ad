package history

import (
	"context"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/jobdir/jobdir/statefs"
)

// followInterval is the least time between the beginnings of two transactions of an index that follows the journal,
// unless a caller waits for one.
const followInterval = time.Second

// sealsAtOnce is how many segments such a transaction seals at most.
const sealsAtOnce = 8

// position is how far an index follows the journal. Only Run uses it once that is called.
type position struct {
	// complete means that every record has been read, and whole that all ends are in the index that are in no line behind
	// applied.
	complete, whole bool
	// follows means that the file was written with the number of the line up to which it is true, applied, and not closed
	// since.
	follows bool
	applied uint64
}

// trust takes over the state of a file. It reads what was committed behind the line up to which the file is true, if
// that names one.
func (f *indexFile) trust(state *fileState) (err error) {
	f.clean = state.Clean
	f.position = position{complete: true, follows: state.Applied != nil && !state.Clean}
	f.whole = f.follows
	journal, last := f.owner.Journal, uint64(0)
	switch {
	case state.Applied != nil:
		f.missed, last, err = journal.Since(state.Storage, *state.Applied)
		f.behind = last != *state.Applied || f.follows && !journal.Wanted()
	case f.clean && journal.Wanted():
		last, err = journal.LastLine()
		f.behind = true
	}
	f.applied = last
	return err
}

// catchUpWithJournal enters what the journal has and the index lacks, before it is used again or removed. On a full
// disk that is left to Run.
func (s *Store) catchUpWithJournal() {
	if !s.behind {
		return
	}
	s.enqueue(changesOf(s, s.missed)...)
	clean := s.clean || !s.owner.Journal.Wanted() // without the journal, the file is closed up to here
	batch := s.takeQueue()
	s.conclude(batch, s.updateUpTo(s.applied, clean, workOf(batch)))
	s.missed, s.behind = nil, false
}

// changesOf returns the changes that lines of the journal make to the index.
func changesOf(s *Store, lines []statefs.Committed) (changes []change) {
	stops := make(map[statefs.ID]uint64) // the last one of each operation
	for _, l := range lines {
		if l.Record == nil {
			changes = append(changes, deletionOf(s, l))
			continue
		}
		if stop, earlier := l.Record.NeedsPersonSeq, stops[l.Record.ID]; stop != 0 && stop != earlier {
			row := stopRow(l.Record)
			row.EarlierStop, stops[row.ID] = earlier, stop
			changes = append(changes, unlessGone(row))
		}
		if l.Record.Status.Terminal() && l.Record.FinishedSeq != 0 {
			changes = append(changes, unlessGone(s.endedRow(l.Record)))
		}
	}
	return changes
}

// unlessGone returns the change that adds a row unless the index knows that the operation was deleted.
func unlessGone(row Row) change {
	c := put(row)
	add := c.apply
	c.apply = func(x index) error {
		if x.gone.Get(keyOf(row.ID)) != nil {
			return nil
		}
		return add(x)
	}
	return c
}

// deletionOf returns the change of a deletion. Files of the operations may be left.
func deletionOf(s *Store, l statefs.Committed) change {
	return change{mustSucceed: true, apply: func(x index) error {
		ids := []statefs.ID{l.Deleted}
		if l.Day != "" {
			var err error
			if ids, err = x.ofDay(l.Day); err != nil {
				return err
			}
		}
		for _, id := range ids {
			if x.has(keyOf(id)) {
				if err := x.scheduleDeletion(id, s.owner.Now(), s.deletedIDRetention); err != nil {
					return err
				}
			}
		}
		return nil
	}}
}

// ofDay returns the operations that were submitted on a day.
func (x index) ofDay(day string) (ids []statefs.ID, err error) {
	from, to, ok := aroundDay(day)
	if !ok {
		return nil, nil
	}
	cursor := x.created.Cursor()
	for key, number := cursor.Seek(from); key != nil && string(key) < string(to); key, number = cursor.Next() {
		row, err := x.row(number)
		if err != nil {
			return nil, err
		}
		if row.ID.Day() == day {
			ids = append(ids, row.ID)
		}
	}
	return ids, nil
}

// aroundDay returns the keys of the bucket created between which the operations of a day are, in any time zone.
func aroundDay(day string) (from, to []byte, ok bool) {
	midnight, err := time.Parse(time.DateOnly, day)
	return timeKey(nanos(midnight.Add(-14*time.Hour)), nil), timeKey(nanos(midnight.Add(36*time.Hour)), nil), err == nil
}

// reach returns up to which line the index is true once it has what is in the queue by then; nil if the journal is not
// in use. Each end behind it is not published yet, or its number is not known yet.
func (s *Store) reach() *uint64 {
	_, durable, inUse := s.owner.Journal.Reach()
	if !inUse {
		return nil
	}
	upTo := s.numbers.leastLine(durable)
	return &upTo
}

// updateUpTo is update in one transaction that also says that the index is true up to a line of the journal. It is
// synced if the lines are, and if the file is closed.
func (f *indexFile) updateUpTo(line uint64, clean bool, work []func(index) error) (err error) {
	f.dbMu.RLock()
	defer f.dbMu.RUnlock()
	defer recoverDamage(&err)()
	line = max(line, f.applied)
	if f.follows && !clean && line == f.applied && len(work) == 0 {
		return nil
	}
	synced := f.owner.Durability() == statefs.Power
	f.db.NoSync = !synced && !clean
	defer func() { f.db.NoSync = true }()
	err = f.db.Update(func(tx *bolt.Tx) error {
		x := indexOf(tx)
		if err := applyAll(x, work); err != nil {
			return err
		}
		return f.changeState(x, func(s *fileState) {
			s.Clean, s.Synced, s.Applied, s.Storage = clean, synced, &line, f.owner.Journal.Storage()
		})
	})
	if err == nil {
		f.clean, f.follows, f.applied = clean, !clean, line
	}
	return err
}

// checkpoint is the statefs.JournalFollower of the index. A checkpoint of the journal waits for an index that follows.
// Any other index, or an index that cannot be written, is built again after a crash.
func (s *Store) checkpoint(ctx context.Context, upTo uint64) uint64 {
	if follows, _ := s.followsTo(); !follows {
		return upTo
	}
	err := s.Sync(ctx)
	follows, applied := s.followsTo()
	switch {
	case ctx.Err() != nil:
		return 0
	case err != nil || !follows: // it cannot be written
		return upTo
	}
	return min(upTo, applied)
}

// followsTo returns the line up to which the index has what was committed, and whether it follows the journal.
func (w *writer) followsTo() (follows bool, applied uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.written.follows, w.written.applied
}
