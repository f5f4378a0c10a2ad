package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

// floodFiles is the limit of open files of the daemons of section s.
const floodFiles = 1024

// flooded is a daemon of section s.
type flooded struct {
	*server
	label string // for its rows: empty for the program of this tree
}

// questions are asked of the index and of what counts operations.
var questions = []struct{ name, path string }{
	{"newest page of 50", "/api/v1/operations?limit=50"},
	{"/metrics", "/metrics"},
	{"/api/v1/stats", "/api/v1/stats"},
}

// measureFlood is section s: the program of this tree and, with -before, an earlier one, which are asked in turns.
func measureFlood(ctx context.Context, b *bench) (rows []Row, err error) {
	disk, done, err := b.onDisk(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	return disk.floodRows(ctx)
}

func (b *bench) floodRows(ctx context.Context) (rows []Row, err error) {
	floor, err := b.startFloorTree(ctx, b.durability, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, floor.child.stop()) }()
	all := []*flooded{{}}
	programs := []string{b.binary}
	if b.before != "" {
		all, programs = append(all, &flooded{label: "before: "}), append(programs, b.before)
	}
	for i, f := range all {
		storage, err := b.folder("storage")
		if err != nil {
			return rows, err
		}
		if f.server, err = b.startProgram(ctx, programs[i], floodFiles, storage); err != nil {
			return rows, err
		}
		defer func() { err = errors.Join(err, f.stop(ctx)) }()
	}
	more, err := b.askFlooded(ctx, all, floor, "nothing ended")
	if rows = append(rows, more...); err != nil {
		return rows, err
	}
	for _, f := range all { // one after the other, so that each has the machine
		more, err := b.flood(ctx, f, floor)
		if rows = append(rows, more...); err != nil {
			return rows, fmt.Errorf("%sflood: %w", f.label, err)
		}
	}
	more, err = b.askFlooded(ctx, all, floor, fmt.Sprintf("%d ended", b.counts.queued))
	return append(rows, more...), err
}

// askFlooded asks each question of all daemons and of a server that answers nothing, in turns.
func (b *bench) askFlooded(ctx context.Context, all []*flooded, floor *server, when string) (rows []Row, err error) {
	for _, question := range questions {
		var bare times
		took := make([]times, len(all))
		for range b.counts.turns {
			one, err := roundTrip(ctx, floor.base+"/nothing")
			if err != nil {
				return rows, err
			}
			bare = append(bare, one)
			for i, f := range all {
				if one, err = roundTrip(ctx, f.base+question.path); err != nil {
					return rows, err
				}
				took[i] = append(took[i], one)
			}
		}
		low := bare.quantile(0.5)
		for i, f := range all {
			name := fmt.Sprintf("%s%s, %s, p50; floor: a bare answer", f.label, question.name, when)
			rows = append(rows, row(name, "ms", took[i].quantile(0.5), &low, nil, len(took[i])))
		}
	}
	return rows, nil
}

func roundTrip(ctx context.Context, target string) (time.Duration, error) {
	began := time.Now()
	_, err := call(ctx, http.MethodGet, target, "")
	return time.Since(began), err
}

// flood submits operations that end at once and write nothing, asks for the newest right after the last answer, and
// counts the lines of the daemon's log when all have ended: two for each operation, and one for each thing that failed.
func (b *bench) flood(ctx context.Context, f *flooded, floor *server) (rows []Row, err error) {
	count := b.counts.queued
	quiet, err := f.logLines()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	for left := count; left > 0; left -= fillSize {
		list := listOf("bench/trivial", min(left, fillSize))
		if _, err := call(ctx, http.MethodPost, f.base+"/api/v1/operations", list); err != nil {
			return nil, err
		}
	}
	first, err := roundTrip(ctx, f.base+questions[0].path)
	if err != nil {
		return nil, err
	}
	bare, err := roundTrip(ctx, floor.base+"/nothing")
	if err != nil {
		return nil, err
	}
	if err := f.awaitCount(ctx, "completed", count); err != nil {
		return nil, err
	}
	took := time.Since(began)
	lines, err := f.logLines()
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%s%d operations without work, ulimit -n %d: ", f.label, count, floodFiles)
	low, usual := milliseconds(bare), float64(quiet+2*count)
	return []Row{
		row(what+"the first list after the submits; floor: a bare answer", "ms", milliseconds(first), &low, nil, 1),
		row(what+"lines in the daemon's log; floor: two for each", "lines", float64(lines), &usual, nil, count),
		row(what+"submitted and finished", "1/s", float64(count)/took.Seconds(), nil, nil, count),
	}, nil
}

// logLines counts the lines of the daemon's log.
func (s *server) logLines() (int, error) {
	data, err := os.ReadFile(s.logFile)
	if err != nil {
		return 0, fmt.Errorf("read the log of the daemon: %w", err)
	}
	return bytes.Count(data, []byte{'\n'}), nil
}
