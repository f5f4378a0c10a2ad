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

// listedPeer is a system that the program of bench/peers can measure.
type listedPeer struct {
	Name       string
	Durability string // of ours beside it
}

// peersRows has the program of bench/peers do with other systems what is done with ours, on the same file system.
// Ours is measured again right before and right after each of them, so that both have the same machine.
func (b *bench) peersRows(ctx context.Context) (rows []Row, err error) {
	if b.peers == "" {
		return nil, nil
	}
	var all []listedPeer
	listed, err := exec.CommandContext(ctx, b.peers, "-list").Output()
	if err == nil {
		err = json.Unmarshal(listed, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s for its systems: %w", b.peers, err)
	}
	ours := make(map[string]*server)
	for _, p := range all {
		s := ours[p.Durability]
		if s == nil {
			if s, err = b.startLoad(ctx, "", p.Durability); err != nil {
				return rows, err
			}
			defer func() { err = errors.Join(err, s.stop(ctx)) }()
			if err := b.warm(ctx, s, nil); err != nil {
				return rows, err
			}
			ours[p.Durability] = s
		}
		more, err := b.besidePeer(ctx, s, p)
		rows = append(rows, more...)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return rows, nil
}

func (b *bench) besidePeer(ctx context.Context, s *server, listed listedPeer) ([]Row, error) {
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
	p, err := b.measurePeer(ctx, listed.Name)
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
		row(fmt.Sprintf("%s, %s: submitted and finished; floor: %s", listed.Durability, manyClients(loadClients), p.Name),
			"1/s", ours.rate(), &p.Rate, target, b.counts.load),
		row(fmt.Sprintf("%s: submitted to finished at %d a second, p50", p.Name, steadyRate), "ms", p.P50, nil, nil, steady),
		row(p.Name+": the same, p99", "ms", p.P99, nil, nil, steady),
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
