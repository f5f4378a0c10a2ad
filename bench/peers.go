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

// peersRows has the program of bench/peers do with other systems what was done with ours, on the same file system.
func (b *bench) peersRows(ctx context.Context, ours float64) (rows []Row, err error) {
	if b.peers == "" {
		return nil, nil
	}
	dir, err := b.folder("peers")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// PostgreSQL has a user of its own, who has to get through to its folder.
	for above := dir; strings.Contains(above, "jobdir-bench-"); above = filepath.Dir(above) {
		if err := os.Chmod(above, 0o711); err != nil { // through, and no further
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, b.peers, "-dir", dir, "-count", strconv.Itoa(b.counts.load), "-clients", strconv.Itoa(loadClients),
		"-rate", strconv.Itoa(steadyRate), "-seconds", strconv.Itoa(b.counts.seconds), "-repeats", strconv.Itoa(b.counts.repeats))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends the servers that it started
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the peers: %w", err)
	}
	var decodeErr error
	for lines := json.NewDecoder(out); ; {
		var p peerRow
		if decodeErr = lines.Decode(&p); decodeErr != nil {
			break
		}
		target := leastOfFloor(1)
		if p.Mark {
			target = nil
		}
		what := fmt.Sprintf("power, %s: submitted and finished; floor: %s", manyClients(loadClients), p.Name)
		rows = append(rows, row(what, "1/s", ours, &p.Rate, target, b.counts.load),
			row(p.Name+": submitted to finished at "+strconv.Itoa(steadyRate)+" a second, p50", "ms", p.P50, nil, nil, steadyRate*b.counts.seconds),
			row(p.Name+": the same, p99", "ms", p.P99, nil, nil, steadyRate*b.counts.seconds))
	}
	if err := cmd.Wait(); err != nil {
		return rows, fmt.Errorf("the peers: %w", err)
	}
	return rows, nil
}
