package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// buildBatch is how many records are indexed in one transaction while the index is built.
const buildBatch = 1000

// build reads every record, the newest day first, until the index is complete or ctx ends.
// Operations that end during the build enter the same index: a row that is put twice exists once.
func (s *Store) build(ctx context.Context) {
	began := time.Now()
	for {
		count, err := s.readAll(ctx)
		if err == nil {
			err = s.do(ctx, change{apply: s.complete, completes: true, sync: true})
		}
		if err == nil {
			s.buildFinished()
			if count > 0 {
				s.log.Info("history index built", "operations", count, "took",
					time.Since(began).Round(time.Millisecond))
			}
			return
		}
		if ctx.Err() != nil {
			return
		}
		s.log.Error("history index not built, retrying", "error", err)
		select {
		case <-time.After(10 * retryInterval):
		case <-ctx.Done():
			return
		}
	}
}

// complete records that every record has been read.
func (s *Store) complete(x index) error {
	return s.changeState(x, func(state *fileState) { state.Complete = true })
}

func (s *Store) readAll(ctx context.Context) (count int, err error) {
	days, err := s.owner.Days()
	if err != nil {
		return 0, err
	}
	s.progress(func(p *buildProgress) { *p = buildProgress{began: time.Now(), days: len(days), daysLeft: len(days)} })
	for _, day := range days {
		files, err := s.owner.ListDay(day)
		if err != nil {
			return count, err
		}
		if len(files.Deleted) > 0 {
			if err := s.owner.Delete(day, files.Deleted); err != nil {
				return count, err
			}
		}
		for some := range slices.Chunk(files.Records, buildBatch) {
			n, err := s.readSome(ctx, some)
			count += n
			if err != nil {
				return count, err
			}
			s.progress(func(p *buildProgress) { p.records += n })
		}
		s.progress(func(p *buildProgress) { p.daysLeft-- })
	}
	return count, nil
}

func (s *Store) readSome(ctx context.Context, ids []statefs.ID) (count int, err error) {
	var rows []Row
	var numbers []uint64
	var unread []statefs.ID
	for _, id := range ids {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		rec, err := s.owner.ReadRecord(id)
		switch corrupt := (*statefs.CorruptError)(nil); {
		case errors.Is(err, fs.ErrNotExist):
			continue // it was deleted since
		case errors.As(err, &corrupt), errors.Is(err, statefs.ErrNewerVersion):
			if _, notLive := s.owner.State(id); notLive != nil { // the daemon handles live operations itself
				s.log.Warn("a record is not in the history; repair it, then remove history.db while the daemon is stopped",
					"id", id, "error", err)
				unread = append(unread, id)
			}
			continue
		case err != nil:
			return 0, err
		}
		if rec.NeedsPersonSeq != 0 {
			rows = append(rows, stopRow(rec))
		}
		if !rec.Status.Terminal() {
			continue
		}
		if rec.FinishedSeq == 0 {
			if err := s.NumberOld(rec); err != nil {
				return 0, err
			}
			numbers = append(numbers, rec.FinishedSeq)
		}
		rows = append(rows, s.endedRow(rec))
		count++
	}
	err = s.do(ctx, change{apply: func(x index) error {
		for i := range rows {
			if err := x.put(&rows[i]); err != nil {
				return err
			}
		}
		for _, id := range unread {
			if err := x.unread.Put(keyOf(id), []byte(id.String())); err != nil {
				return err
			}
		}
		return nil
	}})
	s.numbers.resolve(numbers...)
	return count, err
}

// NumberOld assigns a number to an operation that ended without one, under an earlier version of
// this program.
func (s *Store) NumberOld(rec *statefs.Record) error {
	number, err := s.Number()
	if err != nil {
		return err
	}
	rec.FinishedSeq = number
	if err := s.owner.AmendRecord(rec); err != nil {
		s.Unused(number)
		return fmt.Errorf("number the end of %s: %w", rec.ID, err)
	}
	return nil
}
