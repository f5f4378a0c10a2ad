package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// Targets of section d, in KiB.
const (
	streamMost = 30
	pausedMost = 16
)

// measureMemory is section d.
func measureMemory(ctx context.Context, b *bench) (rows []Row, err error) {
	count := b.counts.streams
	if most := (maxFiles() - 500) / 2; count > most { // each stream holds its connection and the log
		count = most
	}
	var floor, ticker memory
	for _, bare := range []struct {
		path string
		into *memory
	}{{"/idle", &floor}, {"/ticker", &ticker}} {
		if *bare.into, err = b.bareStreams(ctx, bare.path, count); err != nil {
			return nil, err
		}
	}
	built, err := b.streamMemory(ctx, b.startServer, "simulated", count)
	if err != nil {
		return nil, err
	}
	own, err := b.streamMemory(ctx, b.startOwnServer, "hold", count)
	if err != nil {
		return nil, err
	}
	low := perOne(floor.resident, count)
	rows = append(rows, row("idle stream, resident", "KiB", perOne(built.resident, count), &low, most(streamMost), count))
	for _, r := range []struct {
		name         string
		value, floor int64
	}{
		{"idle stream, anonymous", built.anonymous, floor.anonymous},
		{"idle stream, private and written to", built.private, floor.private},
		{"idle stream, resident after a collection of garbage", own.settled, floor.settled},
		{"idle stream, heap and stacks in use", own.inUse, floor.inUse},
		{"polling: idle stream, resident", ticker.resident, floor.resident},
		{"polling: idle stream, resident after a collection of garbage", ticker.settled, floor.settled},
		{"polling: idle stream, heap and stacks in use", ticker.inUse, floor.inUse},
	} {
		low := perOne(r.floor, count)
		rows = append(rows, row(r.name, "KiB", perOne(r.value, count), &low, nil, count))
	}
	more, err := b.pausedMemory(ctx)
	return append(rows, more...), err
}

func perOne(bytes int64, count int) float64 { return float64(bytes) / 1024 / float64(count) }

// bareStreams measures what idle answers of net/http alone take.
func (b *bench) bareStreams(ctx context.Context, path string, count int) (grown memory, err error) {
	bare, err := startBare(ctx)
	if err != nil {
		return memory{}, err
	}
	defer func() { err = errors.Join(err, bare.child.stop()) }()
	return b.idleStreams(ctx, bare.child, bare.base+path, count, true)
}

func (b *bench) streamMemory(ctx context.Context, start startFunc, job string, count int) (grown memory, err error) {
	s, err := start(ctx)
	if err != nil {
		return memory{}, err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	seen, err := watch(inNames, nil, s.jobs(), s.taken())
	if err != nil {
		return memory{}, err
	}
	defer seen.close()
	id, err := s.running(ctx, job)
	if err != nil {
		return memory{}, err
	}
	if _, err := (&controller{server: s, seen: seen}).request(ctx, "touch", id, "pause", id+".paused"); err != nil {
		return memory{}, err
	}
	return b.idleStreams(ctx, s.child, s.streamOf(id), count, job == "hold")
}

// idleStreams opens streams on which nothing happens, and returns what the process grew by. A few are opened and
// closed before, so that what is made once is not counted.
func (b *bench) idleStreams(ctx context.Context, c *child, target string, count int, asked bool) (memory, error) {
	warm, err := openRaw(ctx, target, max(count/50, 2))
	closeAll(warm)
	if err != nil {
		return memory{}, err
	}
	if err := b.rest(ctx); err != nil {
		return memory{}, err
	}
	before, err := memoryOf(c, asked)
	if err != nil {
		return memory{}, err
	}
	conns, err := openRaw(ctx, target, count)
	defer closeAll(conns)
	if err != nil {
		return memory{}, err
	}
	if err := b.rest(ctx); err != nil {
		return memory{}, err
	}
	after, err := memoryOf(c, asked)
	return after.minus(before), err
}

// rest lets a process come to rest before it is looked at.
func (b *bench) rest(ctx context.Context) error {
	wait := time.NewTimer(b.counts.rest)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close() // it was only read
	}
}

// openRaw opens streams without a client of net/http, whose own memory and goroutines would crowd the machine.
func openRaw(ctx context.Context, target string, count int) ([]net.Conn, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n",
		u.RequestURI(), u.Host)
	conns := make([]net.Conn, 0, count)
	for range count {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return conns, fmt.Errorf("open stream %d: %w", len(conns)+1, err)
		}
		conns = append(conns, c)
		if err := beginRaw(c, request); err != nil {
			return conns, fmt.Errorf("open stream %d: %w", len(conns), err)
		}
	}
	return conns, nil
}

// beginRaw sends a request and reads until the log begins.
func beginRaw(c net.Conn, request string) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(request)); err != nil {
		return err
	}
	in := bufio.NewReaderSize(c, 512)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return fmt.Errorf("after %q: %w", line, err)
		}
		if strings.TrimRight(line, "\r\n") == "<log>" {
			return nil
		}
	}
}

// pausedMemory measures what paused handler operations take.
func (b *bench) pausedMemory(ctx context.Context) (rows []Row, err error) {
	count := b.counts.paused
	built, err := b.pausedGrowth(ctx, b.startServer, "simulated", count)
	if err != nil {
		return nil, err
	}
	own, err := b.pausedGrowth(ctx, b.startOwnServer, "hold", count)
	if err != nil {
		return nil, err
	}
	return []Row{
		row("paused handler operation, resident", "KiB", perOne(built.resident, count), nil, most(pausedMost), count),
		row("paused handler operation, anonymous", "KiB", perOne(built.anonymous, count), nil, nil, count),
		row("paused handler operation, private and written to", "KiB", perOne(built.private, count), nil, nil, count),
		row("paused handler operation, resident after a collection of garbage", "KiB",
			perOne(own.settled, count), nil, nil, count),
		row("paused handler operation, heap and stacks in use", "KiB", perOne(own.inUse, count), nil, nil, count),
	}, nil
}

func (b *bench) pausedGrowth(ctx context.Context, start startFunc, job string, count int) (grown memory, err error) {
	s, err := start(ctx)
	if err != nil {
		return memory{}, err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	// Let some paused operations that stay cause the one-time costs: above all the threads that wait for the
	// disk, one for each concurrent reconcile.
	if err := b.pauseMany(ctx, s, job, max(count/5, 2)); err != nil {
		return memory{}, err
	}
	before, err := memoryOf(s.child, job == "hold")
	if err != nil {
		return memory{}, err
	}
	if err := b.pauseMany(ctx, s, job, count); err != nil {
		return memory{}, err
	}
	after, err := memoryOf(s.child, job == "hold")
	return after.minus(before), err
}

// pauseMany starts operations and pauses them, and returns when all markers say so.
func (b *bench) pauseMany(ctx context.Context, s *server, job string, count int) error {
	seen, err := watch(inNames, nil, s.jobs(), s.taken())
	if err != nil {
		return err
	}
	defer seen.close()
	ids := make([]string, count)
	const together = 16
	errs := make([]error, together)
	var group sync.WaitGroup
	for part := range together {
		group.Go(func() {
			for i := part; i < count && errs[part] == nil; i += together {
				ids[i], errs[part] = s.submit(ctx, job)
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := awaitAll(ctx, seen, ids, s.jobs(), ".running"); err != nil {
		return err
	}
	for _, id := range ids {
		if err := touch(s.jobs() + "/" + id + ".pause_requested"); err != nil {
			return err
		}
	}
	if err := awaitAll(ctx, seen, ids, s.jobs(), ".paused"); err != nil {
		return err
	}
	return b.rest(ctx) // the records behind the markers are written
}

// awaitAll returns when every operation has had a marker of this state.
func awaitAll(ctx context.Context, seen *watcher, ids []string, dir, suffix string) error {
	missing := make(map[string]bool, len(ids))
	for _, id := range ids {
		if _, err := os.Lstat(dir + "/" + id + suffix); err != nil {
			missing[id] = true
		}
	}
	for len(missing) > 0 {
		_, err := seen.await(ctx, fmt.Sprintf("%d markers %s", len(missing), suffix), func(e event) bool {
			id, ok := strings.CutSuffix(e.name, suffix)
			was := missing[id]
			if ok && e.from == dir {
				delete(missing, id)
			}
			return ok && was
		})
		if err != nil {
			return err
		}
	}
	return nil
}
