package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// The targets of section q: the ratio of the cost with many waiting operations to that without any, the gap
// of a lane in ms, the memory of a waiting operation in KiB, the time of a start in s, and a count over HTTP
// in ms.
const (
	queueMost    = 1.3
	gapMost      = 5
	waitingMost  = 1.5
	recoveryMost = 5
	countingMost = 1
)

// fillSize is how many submits the lists have by which a queue is filled.
const fillSize = 1000

// queued is a daemon with so many operations that wait.
type queued struct {
	*server
	waiting       int
	submits, gaps times
	counting      times
}

// measureQueue is section q. Three daemons, with none, some and many that wait, are asked in turn, so that all have
// the same machine.
func measureQueue(ctx context.Context, b *bench) (rows []Row, err error) {
	disk, done, err := b.onDisk(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	return disk.queueRows(ctx)
}

func (b *bench) queueRows(ctx context.Context) (rows []Row, err error) {
	all := make([]*queued, 0, 3)
	for _, count := range []int{0, b.counts.queued / 10, b.counts.queued} {
		s, err := b.startLoad(ctx, "", b.durability)
		if err != nil {
			return rows, err
		}
		q := &queued{server: s, waiting: count}
		all = append(all, q)
		defer func() { err = errors.Join(err, q.stop(ctx)) }()
		more, err := q.fill(ctx)
		rows = append(rows, more...)
		if err != nil {
			return rows, err
		}
	}
	floor, err := b.startFloorTree(ctx, b.durability, false)
	if err != nil {
		return rows, err
	}
	defer func() { err = errors.Join(err, floor.child.stop()) }()
	bare, err := b.askQueues(ctx, all, floor)
	if err != nil {
		return rows, err
	}
	rows = append(rows, queueCosts(all, bare)...)
	more, err := b.recovery(ctx, all[2])
	return append(rows, more...), err
}

// fill has one operation hold the lane and so many wait behind it, and measures what these take in memory.
func (q *queued) fill(ctx context.Context) (rows []Row, err error) {
	grown, took, err := q.grow(ctx)
	if err != nil || q.waiting == 0 {
		return nil, err
	}
	what := fmt.Sprintf("%d queued: ", q.waiting)
	return []Row{
		row(what+fmt.Sprintf("submits in lists of %d by one client", fillSize), "1/s", float64(q.waiting)/took.Seconds(),
			nil, nil, q.waiting),
		row(what+"memory of each, heap and stacks in use", "KiB", perOne(grown.inUse, q.waiting), nil,
			most(waitingMost), q.waiting),
		row(what+"memory of each, resident", "KiB", perOne(grown.resident, q.waiting), nil, nil, q.waiting),
		row(what+"memory of each, resident after a collection of garbage", "KiB", perOne(grown.settled, q.waiting), nil,
			most(waitingMost), q.waiting),
	}, nil
}

// grow has one operation hold the lane and so many wait behind it. It returns what the daemon has grown by, and how
// long the submits took.
func (q *queued) grow(ctx context.Context) (grown memory, took time.Duration, err error) {
	if _, err := q.submit(ctx, "gated"); err != nil {
		return grown, 0, err
	}
	before, err := memoryOf(q.child, true)
	if err != nil || q.waiting == 0 {
		return grown, 0, err
	}
	began := time.Now()
	for left := q.waiting; left > 0; left -= fillSize {
		if _, err := call(ctx, http.MethodPost, q.base+"/api/v1/operations",
			listOf("bench/gated", min(left, fillSize))); err != nil {
			return grown, 0, err
		}
	}
	took = time.Since(began)
	if err := q.awaitCount(ctx, "queued", q.waiting); err != nil {
		return grown, 0, err
	}
	after, err := memoryOf(q.child, true)
	return after.minus(before), took, err
}

// count asks how many operations have a status.
func (s *server) count(ctx context.Context, status string) (count int, took time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/api/v1/operations?limit=0&status="+status, nil)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	answer, err := web.Do(r)
	if err != nil {
		return 0, 0, err
	}
	took = time.Since(began)
	_, err = fmt.Sscan(answer.Header.Get("X-Total-Count"), &count)
	if err != nil {
		err = fmt.Errorf("count what is %s: %s: %w", status, answer.Status, err)
	}
	return count, took, errors.Join(err, answer.Body.Close())
}

// awaitCount returns when the daemon counts so many of a status: it takes what was submitted from its folder, not
// from the submit.
func (s *server) awaitCount(ctx context.Context, status string, count int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*patience+time.Duration(count)*5*time.Millisecond)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		have, _, err := s.count(ctx, status)
		if err != nil || have >= count {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %d are %s, there are %d: %w", count, status, have, ctx.Err())
		}
	}
}

// askQueues takes turns, and returns the gaps of the floor: the same file operations between two pieces of work.
func (b *bench) askQueues(ctx context.Context, all []*queued, floor *server) (bare times, err error) {
	for range b.counts.turns {
		for _, q := range all {
			began := time.Now()
			if _, err := q.submit(ctx, "gated"); err != nil {
				return nil, err
			}
			q.submits = append(q.submits, time.Since(began))
			_, took, err := q.count(ctx, "queued")
			if err != nil {
				return nil, err
			}
			q.counting = append(q.counting, took)
		}
	}
	if _, err := call(ctx, http.MethodPost, floor.base+"/next", "{}"); err != nil {
		return nil, err
	}
	for range b.counts.turns {
		for _, q := range all {
			gap, err := q.nextGap()
			if err != nil {
				return nil, err
			}
			q.gaps = append(q.gaps, gap)
		}
		gap, err := floor.floorGap(ctx)
		if err != nil {
			return nil, err
		}
		bare = append(bare, gap)
	}
	return bare, nil
}

func queueCosts(all []*queued, bare times) (rows []Row) {
	for _, what := range []struct {
		name string
		of   func(*queued) times
	}{
		{"submit", func(q *queued) times { return q.submits }},
		{"from the return of one to the beginning of the next in a lane of one", func(q *queued) times { return q.gaps }},
	} {
		low := what.of(all[0]).quantile(0.5)
		for _, q := range all[1:] {
			took := what.of(q)
			rows = append(rows, row(fmt.Sprintf("%s, p50: %d queued; floor: none queued", what.name, q.waiting), "ms",
				took.quantile(0.5), &low, mostOfFloor(queueMost), len(took)))
		}
	}
	many := all[len(all)-1]
	rows = append(rows,
		latencies(fmt.Sprintf("place freed → next one begins, %d queued; floor: the file operations of both", many.waiting),
			many.gaps, bare, 0, gapMost)...)
	rows = append(rows, latencies("the same, none queued", all[0].gaps, bare, 0, gapMost)...)
	return append(rows, latencies(fmt.Sprintf("GET status=queued&limit=0, round trip, %d queued; floor: none queued",
		many.waiting), many.counting, all[0].counting, countingMost, 0)...)
}

// recovery starts the daemon again on what waits.
func (b *bench) recovery(ctx context.Context, q *queued) (rows []Row, err error) {
	count, _, err := q.count(ctx, "queued")
	if err == nil {
		err = q.halt(ctx)
	}
	if err != nil {
		return nil, err
	}
	began := time.Now()
	s, err := b.startLoad(ctx, q.storage, b.durability)
	if err != nil {
		return nil, err
	}
	ready := time.Since(began)
	q.server = s // which ends with the section
	// The operation that ran is queued again, and the lane can start one.
	if err := q.awaitCount(ctx, "queued", count); err != nil {
		return nil, err
	}
	what := fmt.Sprintf("start on %d queued: ", count)
	return []Row{
		row(what+"until it serves", "s", ready.Seconds(), nil, most(recoveryMost), count),
		row(what+"until all are in the queue again", "s", time.Since(began).Seconds(), nil, most(recoveryMost), count),
	}, nil
}

// floorGap is what nextGap is for a floor.
func (s *server) floorGap(ctx context.Context) (time.Duration, error) {
	data, err := call(ctx, http.MethodPost, s.base+"/next", "{}")
	if err != nil {
		return 0, err
	}
	var answer floorAnswer
	err = json.Unmarshal(data, &answer)
	return answer.Gap, err
}
