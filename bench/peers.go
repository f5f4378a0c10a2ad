package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// peerRow is what the program of bench/peers says of one other system, one line of JSON each.
type peerRow struct {
	Name     string
	Rate     float64 // submitted and finished a second
	P50, P99 float64 // submitted to finished at steadyRate, in ms
	Mark     bool    // no target, a mark beyond it
}

// peersRows has the program of bench/peers do with other systems what is done with ours, on the same file system.
// Ours is measured again right before and right after each of them, so that both have the same machine.
func (b *bench) peersRows(ctx context.Context) (rows []Row, err error) {
	if b.peers == "" {
		return nil, nil
	}
	var names []string
	listed, err := exec.CommandContext(ctx, b.peers, "-list").Output()
	if err == nil {
		err = json.Unmarshal(listed, &names)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s for its systems: %w", b.peers, err)
	}
	s, err := b.startLoad(ctx, "", durablePower)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	if err := b.warm(ctx, s, nil); err != nil {
		return nil, err
	}
	for _, name := range names {
		more, err := b.besidePeer(ctx, s, name)
		rows = append(rows, more...)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", name, err)
		}
	}
	return rows, nil
}

func (b *bench) besidePeer(ctx context.Context, s *server, name string) ([]Row, error) {
	f := &feed{server: s}
	if err := f.skip(ctx); err != nil {
		return nil, err
	}
	ours := &loaded{name: "jobdir", each: func() (float64, error) {
		turn, err := f.load(ctx, loadClients, b.counts.load)
		return turn.finished, err
	}}
	if err := middle((b.counts.repeats+1)/2, ours); err != nil {
		return nil, err
	}
	p, err := b.measurePeer(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := middle((b.counts.repeats+1)/2, ours); err != nil {
		return nil, err
	}
	target := leastOfFloor(1)
	if p.Mark {
		target = nil
	}
	steady := steadyRate * b.counts.seconds
	return []Row{
		row(fmt.Sprintf("power, %s: submitted and finished; floor: %s", manyClients(loadClients), name), "1/s", ours.rate(),
			&p.Rate, target, b.counts.load),
		row(fmt.Sprintf("%s: submitted to finished at %d a second, p50", name, steadyRate), "ms", p.P50, nil, nil, steady),
		row(name+": the same, p99", "ms", p.P99, nil, nil, steady),
	}, nil
}

func (b *bench) measurePeer(ctx context.Context, name string) (p peerRow, err error) {
	dir, err := b.folder("peer")
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// PostgreSQL has a user of its own, who has to get through to its folder.
	for above := dir; strings.Contains(above, "jobdir-bench-"); above = filepath.Dir(above) {
		if err := os.Chmod(above, 0o711); err != nil { // through, and no further
			return p, err
		}
	}
	cmd := exec.CommandContext(ctx, b.peers, "-dir", dir, "-only", name, "-count", strconv.Itoa(b.counts.load), "-clients",
		strconv.Itoa(loadClients),
		"-rate", strconv.Itoa(steadyRate), "-seconds", strconv.Itoa(b.counts.seconds), "-repeats",
		strconv.Itoa(b.counts.repeats))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends the servers that it started
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &p)
	}
	return p, err
}
