package commit

import (
	"context"
	"time"

	"github.com/jobdir/jobdir/statefs/journal"
	"github.com/jobdir/jobdir/statefs/notify"
)

// write writes record files until ended is closed.
func (l *Log) write(ended <-chan struct{}) {
	for {
		id, s, wait := l.next()
		if s == nil {
			var timer <-chan time.Time
			if wait > 0 {
				timer = time.After(wait)
			}
			select {
			case <-l.due:
			case <-timer:
			case <-ended:
				return
			}
			continue
		}
		notify.Wake(l.due) // the other writer looks too
		if !l.writeOne(id, s) {
			return
		}
	}
}

// next takes the operation whose file has to be written now. If there is none, it returns after which time there will
// be, 0 if a wake tells.
func (l *Log) next() (id string, s *state, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.urgent) > 0 {
		id, l.urgent = l.urgent[0], l.urgent[1:]
		if s := l.states[id]; s != nil && s.urgent {
			s.urgent = false
			if l.startLocked(s) {
				return id, s, 0
			}
		}
	}
	for len(l.queue) > 0 {
		first := l.queue[0]
		s := l.states[first.id]
		flushed := s != nil && s.behind > 0 && s.behind <= l.flush.to
		if wait := time.Until(first.at); wait > 0 && !flushed && s != nil && s.queued && s.record != nil {
			l.onTimeLocked()
			return "", nil, wait
		}
		l.queue = l.queue[1:]
		if s != nil && s.queued {
			s.queued = false
			if l.startLocked(s) {
				return first.id, s, 0
			}
		}
	}
	l.onTimeLocked()
	return "", nil, 0
}

func (l *Log) onTimeLocked() {
	if l.onTime != nil {
		close(l.onTime)
		l.onTime = nil
	}
}

// startLocked begins to write a file, unless that is under way or not necessary.
func (l *Log) startLocked(s *state) bool {
	if s.record == nil || s.writing {
		return false
	}
	s.writing = true
	return true
}

// writeOne writes the file of an operation once its last line is durable. It returns false if nothing can be committed
// any more. What is appended until then is written by another turn.
func (l *Log) writeOne(id string, s *state) bool {
	l.mu.Lock()
	commit, record, number, isNew := s.commit, s.record, s.number, s.isNew
	l.mu.Unlock()
	err := awaitCommit(commit)
	if err == nil && !l.isDeleted(s) {
		if err = l.o.Write(id, record, isNew); err != nil && l.o.Retryable(err) {
			l.writeLater(id, s, err)
			return true
		}
	}
	if err != nil {
		l.fail(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endWriteLocked(s)
	if err != nil {
		return false
	}
	delete(l.lacks, id)
	if s.record != nil {
		l.wroteLocked(id, s, number)
	}
	if s.record != nil && !s.queued { // it has changed again
		s.queued = true
		l.queue = append(l.queue, due{id, time.Now().Add(l.o.Delay)})
		notify.Wake(l.due)
	}
	l.dropLocked(id, s)
	return true
}

// awaitCommit waits for a commit of this process; nil is of an earlier one.
func awaitCommit(c *journal.Commit) error {
	if c == nil {
		return nil
	}
	<-c.Done()
	return c.Err()
}

func (l *Log) isDeleted(s *state) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.record == nil
}

// writeLater notes that a file could not be written, and that it has to be tried again.
func (l *Log) writeLater(id string, s *state, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endWriteLocked(s)
	if s.record != nil {
		l.lacks[id] = why
	}
	s.queued = true
	l.queue = append(l.queue, due{id, time.Now().Add(retryAfter)})
	l.endFlushLocked()
}

func (l *Log) endWriteLocked(s *state) {
	s.writing = false
	l.wrote.Broadcast()
}

// wroteLocked notes that the file of an operation has its line of a number.
func (l *Log) wroteLocked(id string, s *state, number uint64) {
	s.isNew = false
	l.touched[id] = true
	if s.number > number {
		l.setBehindLocked(s, number+1)
		return
	}
	l.setBehindLocked(s, 0)
	s.record = nil
}

// setBehindLocked sets the number of the first line that the file of an operation lacks, 0 for none.
func (l *Log) setBehindLocked(s *state, number uint64) {
	late := func() bool { return s.behind > 0 && s.behind <= l.flush.to }
	was := late()
	if s.behind = number; was && !late() {
		if l.flush.left--; l.flush.left == 0 {
			l.endFlushLocked()
		}
	}
}

func (l *Log) endFlushLocked() {
	if l.flush.done != nil {
		close(l.flush.done)
		l.flush = flush{}
	}
}

// makeCheckpoints makes a checkpoint some time after a change, and when the journal is half full, until ctx ends or
// nothing can be committed any more. Then it makes the last one.
func (l *Log) makeCheckpoints(ctx context.Context) error {
	var due <-chan time.Time
	changed := l.changed
	for {
		select {
		case <-changed:
			changed, due = nil, time.After(l.o.Interval)
			continue
		case <-due:
		case <-l.full:
		case <-l.life.Done():
			return nil
		case <-ctx.Done():
			if err := l.checkpoint(context.WithoutCancel(ctx)); err != nil {
				return err
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.unwrittenLocked() > 0 {
				return ErrBehind
			}
			l.journal.Refuse() // what is appended from now on would be in no file
			return nil
		}
		changed, due = l.changed, nil
		if err := l.checkpoint(ctx); err != nil && ctx.Err() == nil {
			l.fail(err)
			return err
		}
	}
}

// checkpoint writes the files of all operations that are behind, syncs them, and tells the journal up to which line it
// is not needed any more. Only lines count whose marker is seen, whose file is written, and which are followed.
func (l *Log) checkpoint(ctx context.Context) error {
	l.mu.Lock()
	upTo := l.last
	f := flush{to: upTo, done: make(chan struct{})}
	for _, s := range l.states {
		if s.behind > 0 {
			f.left++
		}
	}
	if f.left > 0 {
		l.flush = f
		notify.Wake(l.due)
	} else {
		close(f.done)
	}
	l.mu.Unlock()
	select {
	case <-f.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return l.err
	}
	upTo = min(upTo, l.viewedLocked())
	if first := l.unwrittenLocked(); first > 0 {
		upTo = min(upTo, first-1)
	}
	ids := make([]string, 0, len(l.touched))
	for id := range l.touched {
		ids = append(ids, id)
	}
	clear(l.touched)
	l.mu.Unlock()
	if err := l.o.Sync(ids); err != nil {
		return err
	}
	if l.o.Followed != nil {
		upTo = min(upTo, l.o.Followed(ctx, upTo))
	}
	l.journal.Checkpoint(upTo)
	l.mu.Lock()
	defer l.mu.Unlock()
	if upTo < l.last {
		notify.Wake(l.changed) // for the rest
	}
	return nil
}
