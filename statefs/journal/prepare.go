package journal

import (
	"context"
	"slices"
	"time"
)

// prepare keeps a spare segment, so that the writer need not wait for one. It ends with ctx.
func (j *Journal) prepare(ctx context.Context) {
	for {
		did, err := j.prepareOne()
		if did || err != nil {
			j.setLack(err)
		}
		if did && err == nil {
			continue
		}
		var retry <-chan time.Time
		if err != nil {
			retry = time.After(retryAfter)
		}
		select {
		case <-j.demand:
		case <-retry:
		case <-ctx.Done():
			return
		}
	}
}

// setLack notes why there is no room for more, and wakes who waits for it.
func (j *Journal) setLack(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lack = err
	close(j.changed)
	j.changed = make(chan struct{})
}

// prepareOne makes or removes one segment, and returns false if none is wanted or too many.
func (j *Journal) prepareOne() (did bool, err error) {
	do, s := j.nextTask()
	switch do {
	case reuse:
		err = rename(j.root, segmentName(s.old), segmentName(s.number), j.o.Durable)
	case grow:
		err = create(j.root, s.number, s.size, j.o.Durable)
	case discard:
		err = remove(j.root, segmentName(s.old), j.o.Durable)
	case nothing:
		return false, nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case err == nil && do != discard:
		j.spare = append(j.spare, segment{number: s.number, size: s.size})
	case err != nil && do != grow:
		j.free = slices.Insert(j.free, 0, segment{number: s.old, size: s.size})
	}
	return true, err
}

// task is what the preparer does next.
type task int

const (
	nothing task = iota
	reuse        // gives a free segment the next number
	grow         // makes a segment
	discard      // removes a free segment
)

// prepared is the segment of a task: its number before, and the new one.
type prepared struct {
	old, number uint64
	size        int64
}

func (j *Journal) nextTask() (task, prepared) {
	j.mu.Lock()
	defer j.mu.Unlock()
	size := max(j.o.SegmentSize, (j.wanted+headerSize-1)/headerSize*headerSize)
	have := false
	for _, s := range j.spare {
		have = have || s.size >= size
	}
	p := prepared{number: j.highest + 1, size: size}
	if len(j.free) > 0 { // the oldest first: a gap between segments with frames is damage
		oldest := j.free[0]
		p.old = oldest.number
		switch {
		case oldest.size == size && !have:
			j.free = j.free[1:]
			j.highest++
			return reuse, p
		case oldest.size != j.o.SegmentSize, !have, len(j.closed)+len(j.spare)+len(j.free) > j.keep:
			j.free = j.free[1:]
			p.size = oldest.size
			return discard, p
		}
	}
	if have || j.count() >= j.o.MaxSegments && j.current.number != 0 && j.wanted <= j.o.SegmentSize {
		return nothing, p
	}
	j.highest++
	return grow, p
}
