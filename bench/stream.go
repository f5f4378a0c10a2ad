package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Targets of section c: a part of the floor, and milliseconds.
const (
	throughputPart = 0.5
	arrivalP50     = 0.3
)

// load is one throughput: how many lines, in writes of how many, to how many readers.
type load struct {
	name           string
	lines, each    int
	readers        int
	unit           string
	linesPerSecond bool
}

func loads(c counts) []load {
	all := c.bytes / len(logLine)
	in := func(lines int) int { return max(lines/pieceLines, 1) * pieceLines }
	return []load{
		{"lines written singly", in(all / 16), 1, 1, "lines/s", true},
		{"lines in sixteens", in(all / 2), 16, 1, "lines/s", true},
		{"pieces of 64 KiB", in(all), pieceLines, 1, "MB/s", false},
		{"lines written singly", in(all / 400), 1, c.readers, "lines/s", true},
		{"lines in sixteens", in(all / 40), 16, c.readers, "lines/s", true},
		{"pieces of 64 KiB", in(all / 16), pieceLines, c.readers, "MB/s", false},
	}
}

// of turns the time of a load into its rate; that of many readers is the rate of all together.
func (l load) of(took time.Duration) float64 {
	n := float64(l.lines*l.readers) / took.Seconds()
	if l.linesPerSecond {
		return n
	}
	return n * float64(len(logLine)) / 1e6
}

// measureStream is section c.
func measureStream(ctx context.Context, b *bench) (rows []Row, err error) {
	bare, err := startBare(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.child.stop()) }()
	own, err := b.startOwnServer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, own.stop(ctx)) }()
	built, err := b.startServer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, built.stop(ctx)) }()
	for _, l := range loads(b.counts) {
		more, err := b.throughput(ctx, l, bare, own, built)
		rows = append(rows, more...)
		if err != nil {
			return rows, err
		}
	}
	more, err := b.arrivals(ctx, bare, built)
	return append(rows, more...), err
}

// throughput measures one load on each server in turn, so that all see the same machine, and takes the middle of each.
func (b *bench) throughput(ctx context.Context, l load, bare, own, built *server) ([]Row, error) {
	runs := []struct {
		name string
		run  func(gate string) (target string, end func() error, err error)
		took times
	}{
		{"bare", func(gate string) (string, func() error, error) {
			return bare.base + "/lines?" + l.query(gate), nil, nil
		}, nil},
		{"bare through a file", func(gate string) (string, func() error, error) {
			return bare.base + "/file?" + l.query(gate), nil, nil
		}, nil},
		{"handler", func(gate string) (string, func() error, error) { return l.operation(ctx, own, "lines", gate) }, nil},
		{"command", func(gate string) (string, func() error, error) { return l.operation(ctx, built, "writer", gate) }, nil},
	}
	if l.readers > 1 {
		runs = slices.Delete(runs, 1, 2) // it has one file for each reader, which is not what a stream has
	}
	for range b.counts.repeats {
		for i := range runs {
			gate, err := b.gate()
			if err != nil {
				return nil, err
			}
			target, end, err := runs[i].run(gate)
			if err != nil {
				return nil, err
			}
			took, err := l.read(ctx, target, gate, end != nil)
			if end != nil {
				err = errors.Join(err, end())
			}
			if err != nil {
				return nil, fmt.Errorf("%s, %s, %d readers: %w", runs[i].name, l.name, l.readers, err)
			}
			runs[i].took = append(runs[i].took, took)
		}
	}
	readers := fmt.Sprintf("%d readers", l.readers)
	if l.readers == 1 {
		readers = "1 reader"
	}
	floor := l.of(median(runs[0].took))
	var rows []Row
	for _, r := range runs[1:] {
		var target *Target
		if r.name == "handler" || r.name == "command" {
			target = leastOfFloor(throughputPart)
		}
		rows = append(rows, row(r.name+", "+l.name+", "+readers, l.unit, l.of(median(r.took)), &floor,
			target, l.lines*l.readers))
	}
	return rows, nil
}

func median(t times) time.Duration {
	sorted := slices.Sorted(slices.Values(t))
	return sorted[len(sorted)/2]
}

func (l load) query(gate string) string {
	return url.Values{"lines": {strconv.Itoa(l.lines)}, "each": {strconv.Itoa(l.each)}, "gate": {gate}}.Encode()
}

// gate makes a named pipe: who opens it to read waits until the other end is opened.
func (b *bench) gate() (string, error) {
	dir, err := b.folder("gate")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "gate")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return "", fmt.Errorf("make a named pipe: %w", err)
	}
	return path, nil
}

// operation starts an operation that writes when its gate opens. end is called when all readers have what they want;
// it removes the log, which has the size of the load.
func (l load) operation(ctx context.Context, s *server, job, gate string) (target string, end func() error, err error) {
	started, err := openLog(ctx, s.base+"/bench/"+job+"?"+l.query(gate))
	if err != nil {
		return "", nil, err
	}
	end = func() error {
		// to the footer, so that the work of ending is not in the next measurement
		_, err := io.Copy(io.Discard, started.body)
		return errors.Join(err, started.body.Close(), os.Truncate(s.logPath(started.id), 0))
	}
	return s.streamOf(started.id), end, nil
}

// read opens all readers, then the gate, and returns how long it took until the last of them had all lines.
func (l load) read(ctx context.Context, target, gate string, framed bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	streams := make([]*reader, l.readers)
	for i := range streams {
		var err error
		if framed {
			streams[i], err = openLog(ctx, target)
		} else {
			streams[i], err = open(ctx, target)
		}
		if err != nil {
			return 0, err
		}
		defer streams[i].body.Close()
	}
	began := time.Now()
	opened, err := os.OpenFile(gate, os.O_WRONLY, 0)
	if err != nil {
		return 0, fmt.Errorf("open the gate: %w", err)
	}
	defer opened.Close()
	errs := make([]error, l.readers)
	var group sync.WaitGroup
	for i, stream := range streams {
		group.Go(func() {
			buf := make([]byte, 256<<10)
			for left := l.lines * len(logLine); left > 0; {
				n, err := stream.body.Read(buf[:min(left, len(buf))])
				left -= n
				if err != nil && left > 0 {
					errs[i] = fmt.Errorf("%d bytes are missing: %w", left, err)
					return
				}
			}
		})
	}
	group.Wait()
	return time.Since(began), errors.Join(errs...)
}

// arrivals measures from a line that is appended to a log until a waiting client has it.
func (b *bench) arrivals(ctx context.Context, bare, built *server) ([]Row, error) {
	id, err := built.running(ctx, "held")
	if err != nil {
		return nil, err
	}
	dir, err := b.folder("tail")
	if err != nil {
		return nil, err
	}
	plain := filepath.Join(dir, "log")
	if err := touch(plain); err != nil {
		return nil, err
	}
	floor, err := openTail(ctx, plain, bare.base+"/tail?"+url.Values{"path": {plain}}.Encode(), "<log>\n")
	if err != nil {
		return nil, err
	}
	defer floor.close()
	value, err := openTail(ctx, built.logPath(id), built.streamOf(id), "<log>\nstarted\n")
	if err != nil {
		return nil, err
	}
	defer value.close()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for range b.counts.appends {
		for _, t := range []*tail{floor, value} {
			<-tick.C
			if err := t.line(); err != nil {
				return nil, err
			}
		}
	}
	if err := built.control(ctx, "POST", id, "cancel"); err != nil {
		return nil, err
	}
	return latencies("line appended → at a waiting client", value.took, floor.took, arrivalP50, 0), nil
}

// pace is the pause between two appended lines, in which the server goes back to waiting.
const pace = 2 * time.Millisecond

// tail is a log and a client that waits for its lines.
type tail struct {
	log    *os.File
	stream *reader
	cancel context.CancelFunc
	took   times
}

func openTail(ctx context.Context, path, target, begins string) (*tail, error) {
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("append to a log: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	t := &tail{log: log, cancel: cancel}
	if t.stream, err = open(ctx, target); err == nil {
		err = t.stream.until(begins)
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *tail) close() {
	t.cancel()
	_ = t.log.Close() // what was written to it is of no use any more
	if t.stream != nil {
		_ = t.stream.body.Close() // it was only read
	}
}

// line appends a line and waits until the client has it.
func (t *tail) line() error {
	var buf [len(logLine)]byte
	began := time.Now()
	if _, err := t.log.WriteString(logLine); err != nil {
		return fmt.Errorf("append to a log: %w", err)
	}
	if _, err := io.ReadFull(t.stream.body, buf[:]); err != nil {
		return fmt.Errorf("wait for a line: %w", err)
	}
	t.took = append(t.took, time.Since(began))
	return nil
}
