package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// startMost is the target of section f, in milliseconds.
const startMost = 5

// measureStart is section f: the call that starts an operation, until the first byte of its stream is read.
func measureStart(ctx context.Context, b *bench) (rows []Row, err error) {
	floor, err := b.startFloor(ctx)
	if err != nil {
		return nil, err
	}
	s, err := b.startServer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	rows = latencies("bare: two files and two folders synced", floor, nil, 0, 0)
	for _, work := range []struct{ job, name string }{{"simulated", "handler"}, {"nothing", "command"}} {
		var first, whole times
		for range b.counts.starts {
			one, all, err := firstByte(ctx, s.base+"/bench/"+work.job+"?files=0")
			if err != nil {
				return rows, err
			}
			first, whole = append(first, one), append(whole, all)
		}
		rows = append(rows, latencies(work.name+": first byte", first, floor, startMost, 0)...)
		rows = append(rows, latencies(work.name+": all of an operation without work, to its footer", whole, floor, 0, 0)...)
	}
	return rows, nil
}

func (b *bench) startFloor(ctx context.Context) (out times, err error) {
	dir, err := b.folder("floor")
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o750); err != nil {
			return nil, fmt.Errorf("make a folder: %w", err)
		}
	}
	bare, err := startBare(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.child.stop()) }()
	for i := range b.counts.starts {
		one, _, err := firstByte(ctx, bare.base+"/start?"+url.Values{
			"path": {dir},
			"name": {fmt.Sprintf("record-%d", i)},
		}.Encode())
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// firstByte returns when the first byte of a body was there, and when it ended.
func firstByte(ctx context.Context, target string) (first, whole time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	r, err := open(ctx, target)
	if err != nil {
		return 0, 0, err
	}
	defer r.body.Close()
	if _, err := io.ReadFull(r.body, make([]byte, 1)); err != nil {
		return 0, 0, fmt.Errorf("GET %s: %w", target, err)
	}
	first = time.Since(began)
	if _, err := io.Copy(io.Discard, r.body); err != nil {
		return 0, 0, fmt.Errorf("GET %s: %w", target, err)
	}
	return first, time.Since(began), nil
}
