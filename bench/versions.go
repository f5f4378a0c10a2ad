package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"
)

// The targets of section v: the first list after the submits in ms, and the heap of a waiting operation in KiB.
const (
	firstListMost = 50
	queuedMost    = 1
)

// version is a daemon of section v.
type version struct {
	*server
	feed       *feed
	rates, cpu []float64
	first      []float64 // list after a flood, in ms
}

// measureVersions is section v: the daemon of this program and that of an earlier build of it, in turns. What the
// earlier one does is the floor of each row. Without an earlier build it is this one twice, which shows how much the
// machine varies.
func measureVersions(ctx context.Context, b *bench) (rows []Row, err error) {
	disk, done, err := b.onDisk(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	for _, durability := range []string{durablePower, durableProcess} {
		more, err := disk.versionRows(ctx, durability)
		rows = append(rows, more...)
		if err != nil {
			return rows, err
		}
	}
	more, err := disk.waitingRows(ctx)
	return append(rows, more...), err
}

// versions starts the daemon of this program and that of the earlier build.
func (b *bench) versions(ctx context.Context, durability string) (all []*version, stop func() error, err error) {
	stop = func() (err error) {
		for _, v := range all {
			err = errors.Join(err, v.stop(ctx))
		}
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, stop, err
	}
	for _, program := range []string{self, cmp.Or(b.beforeRun, self)} {
		s, err := b.startLoadOf(ctx, program, "", durability, "")
		if err != nil {
			return all, stop, err
		}
		all = append(all, &version{server: s, feed: &feed{server: s}})
	}
	return all, stop, nil
}

// versionRows measures operations that end at once, with many clients, and the first list after a flood of them.
func (b *bench) versionRows(ctx context.Context, durability string) (rows []Row, err error) {
	all, stop, err := b.versions(ctx, durability)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		if _, err := v.feed.load(ctx, loadClients, 2*loadClients); err != nil {
			return nil, err
		}
	}
	count := b.counts.load
	for range b.counts.repeats {
		for _, v := range all {
			before, err := cpuOf(v.child)
			if err != nil {
				return nil, err
			}
			turn, err := v.feed.load(ctx, loadClients, count)
			if err != nil {
				return nil, err
			}
			after, err := cpuOf(v.child)
			if err != nil {
				return nil, err
			}
			v.rates = append(v.rates, turn.finished)
			v.cpu = append(v.cpu, float64((after-before).Microseconds())/float64(count))
		}
		slices.Reverse(all) // who comes first alternates
	}
	if b.counts.repeats%2 == 1 {
		slices.Reverse(all)
	}
	what := fmt.Sprintf("%s, %s: ", durability, manyClients(loadClients))
	floor := func(of func(*version) []float64) *float64 { v := medianOf(of(all[1])); return &v }
	rates := func(v *version) []float64 { return v.rates }
	cpu := func(v *version) []float64 { return v.cpu }
	rows = []Row{
		row(what+"submitted and finished; floor: the earlier version", "1/s", medianOf(all[0].rates), floor(rates), nil,
			count),
		row(what+"processor time of one; floor: the earlier version", "µs", medianOf(all[0].cpu), floor(cpu), nil, count),
	}
	for _, v := range all { // one after the other, so that each has the machine
		if err := v.flood(ctx, b.counts.queued); err != nil {
			return rows, err
		}
	}
	first := func(v *version) []float64 { return v.first }
	return append(rows, row(fmt.Sprintf("%s, %d operations: the first list after the submits; floor: the earlier version",
		durability, b.counts.queued), "ms", medianOf(all[0].first), floor(first), most(firstListMost), 1)), nil
}

// flood submits operations in lists, asks for the newest right after the last answer, and waits until all have ended.
func (v *version) flood(ctx context.Context, count int) error {
	if err := v.feed.skip(ctx); err != nil {
		return err
	}
	for left := count; left > 0; left -= fillSize {
		list := listOf("bench/noop", min(left, fillSize))
		if _, err := call(ctx, http.MethodPost, v.base+"/api/v1/operations", list); err != nil {
			return err
		}
	}
	first, err := roundTrip(ctx, v.base+questions[0].path)
	if err != nil {
		return err
	}
	v.first = append(v.first, milliseconds(first))
	return v.feed.await(ctx, count)
}

// waitingRows measures what an operation takes in memory that waits in the queue.
func (b *bench) waitingRows(ctx context.Context) (rows []Row, err error) {
	all, stop, err := b.versions(ctx, durableProcess)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, err
	}
	heaps := make([]float64, len(all))
	for i, v := range all {
		q := &queued{server: v.server, waiting: b.counts.queued}
		grown, _, err := q.grow(ctx)
		if err != nil {
			return nil, err
		}
		heaps[i] = perOne(grown.inUse, q.waiting)
	}
	name := fmt.Sprintf("%d queued: memory of each, heap and stacks in use; floor: the earlier version", b.counts.queued)
	return []Row{row(name, "KiB", heaps[0], &heaps[1], most(queuedMost), b.counts.queued)}, nil
}

func medianOf(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// cpuOf returns the processor time that a process has used, see proc_pid_stat(5). The kernel counts it in hundredths
// of a second.
func cpuOf(c *child) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.pid()))
	if err != nil {
		return 0, fmt.Errorf("processor time of %s: %w", c.name, err)
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // the first one is field 3
	user, userErr := strconv.ParseInt(string(fields[11]), 10, 64)
	system, systemErr := strconv.ParseInt(string(fields[12]), 10, 64)
	if err := cmp.Or(userErr, systemErr); err != nil {
		return 0, fmt.Errorf("processor time of %s: %w", c.name, err)
	}
	return time.Duration(user+system) * (time.Second / 100), nil
}
