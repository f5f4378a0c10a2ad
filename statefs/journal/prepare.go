package journal

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"
)

// prepare keeps a spare segment, so that the writer need not wait for it. It ends with ctx. A task that failed is tried
// again after a time, not whenever the writer asks.
func (j *Journal) prepare(ctx context.Context) {
	failing := nothing
	var retry <-chan time.Time
	for {
		did, err := j.prepareOne(failing)
		if err != nil {
			failing, retry = did, time.After(retryAfter)
		}
		if did != nothing || failing == nothing {
			j.setLack(&j.lack, err)
		}
		if did != nothing && err == nil {
			continue
		}
		select {
		case <-j.demand:
		case <-retry:
			failing, retry = nothing, nil
		case <-ctx.Done():
			return
		}
	}
}

// setLack notes why the preparer or the writer fails, or that it does not any more.
func (j *Journal) setLack(of *error, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if changes := (err == nil) != (*of == nil); changes {
		j.announceLocked()
	}
	*of = err
}

// prepareOne makes or removes one segment. It returns nothing if no segment is wanted or too many, or only what fails.
func (j *Journal) prepareOne(failing task) (task, error) {
	do, s := j.nextTask(failing)
	var err error
	switch do {
	case reuse:
		err = rename(j.root, segmentName(s.old), segmentName(s.number), j.o.Durable)
	case grow:
		err = create(j.root, s.number, s.size, j.o.Durable)
	case discard:
		err = remove(j.root, segmentName(s.old), j.o.Durable)
	case nothing:
		return nothing, nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case err == nil && do != discard:
		j.spare = append(j.spare, segment{number: s.number, size: s.size})
		j.lack = nil
		j.announceLocked()
	case do == reuse && errors.Is(err, fs.ErrNotExist): // a person has removed it
		err = nil
	case err != nil && do != grow:
		j.free = slices.Insert(j.free, 0, segment{number: s.old, size: s.size})
	}
	return do, err
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

// nextTask takes the next task, unless that task fails.
func (j *Journal) nextTask(failing task) (task, prepared) {
	j.mu.Lock()
	defer j.mu.Unlock()
	do, p := j.chooseLocked()
	if do == failing {
		return nothing, p
	}
	if do == reuse || do == grow {
		j.highest++
		p.number = j.highest
	}
	if do == reuse || do == discard {
		p.old, p.size = j.free[0].number, j.free[0].size
		j.free = j.free[1:]
	}
	return do, p
}

// chooseLocked returns the next task, and the size of a segment that it makes.
func (j *Journal) chooseLocked() (task, prepared) {
	p := prepared{size: max(j.o.SegmentSize, (j.wanted+headerSize-1)/headerSize*headerSize)}
	have := slices.ContainsFunc(j.spare, func(s segment) bool { return s.size >= p.size })
	if len(j.free) > 0 { // the oldest first: a gap between segments with frames is damage
		oldest := j.free[0]
		switch {
		case oldest.size == p.size && !have:
			return reuse, p
		case oldest.size != j.o.SegmentSize, !have, len(j.closed)+len(j.spare)+len(j.free) > j.keep:
			return discard, p
		}
	}
	full := j.count() >= j.o.MaxSegments && max(j.current.number, j.taken.number) != 0
	if have || full && j.wanted <= j.o.SegmentSize && (j.wanted == 0 || !j.ending) {
		return nothing, p
	}
	return grow, p
}
