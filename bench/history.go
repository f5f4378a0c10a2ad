package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jobdir/jobdir/statefs"
)

// The targets of section h: what a large history may cost beside a small one, the time until the daemon serves in ms,
// and the memory in MiB.
const (
	historySmall  = 1000
	historyMost   = 1.2
	historyReady  = 2000
	historyMemory = 64
)

// measureHistory is section h. Two daemons run side by side and are asked in turn, so that both have the same machine.
func measureHistory(ctx context.Context, b *bench) (rows []Row, err error) {
	storages := make([]string, 2)
	began := time.Now()
	for i, n := range []int{historySmall, b.history} {
		if storages[i], err = b.generate(n); err != nil {
			return nil, err
		}
	}
	rows = append(rows, row(fmt.Sprintf("records written: %d", b.history), "s", time.Since(began).Seconds(),
		nil, nil, b.history))
	built, err := b.buildIndexes(ctx, storages)
	rows = append(rows, built...)
	if err != nil {
		return rows, err
	}
	servers := make([]*server, 2)
	ready := make([]float64, 2)
	for i, storage := range storages {
		began := time.Now()
		if servers[i], err = b.startServerOn(ctx, storage); err != nil {
			return rows, err
		}
		ready[i] = milliseconds(time.Since(began))
		defer func() { err = errors.Join(err, servers[i].stop(ctx)) }()
	}
	rows = append(rows, row("start until it serves, with an index", "ms", ready[1], &ready[0], most(historyReady), 1))
	measured, err := b.askHistories(ctx, servers)
	rows = append(rows, measured...)
	if err != nil {
		return rows, err
	}
	var used [2]memory
	for i, s := range servers {
		if used[i], err = memoryOf(s.child, false); err != nil {
			return rows, err
		}
	}
	more := used[1].minus(used[0])
	return append(rows,
		row("memory more than with 1,000: all", "MiB", mebibytes(more.resident), nil, most(historyMemory), 1),
		row("memory more than with 1,000: without pages of files, which the kernel takes back", "MiB",
			mebibytes(more.anonymous), nil, most(historyMemory), 1)), nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func mebibytes(n int64) float64            { return float64(n) / (1 << 20) }

// buildIndexes lets a daemon index each storage for the first time, and measures how soon it serves during
// that.
func (b *bench) buildIndexes(ctx context.Context, storages []string) (rows []Row, err error) {
	for i, storage := range storages {
		began := time.Now()
		s, err := b.startServerOn(ctx, storage)
		if err != nil {
			return rows, err
		}
		served := milliseconds(time.Since(began))
		err = s.awaitIndex(ctx)
		if i == 1 {
			rows = append(rows,
				row("start until it serves, while the index is built", "ms", served, nil, most(historyReady), 1),
				row("start until the index is built from the records", "s", time.Since(began).Seconds(), nil, nil, b.history))
		}
		if err := errors.Join(err, s.halt(ctx)); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// awaitIndex returns when lists are answered.
func (s *server) awaitIndex(ctx context.Context) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := call(ctx, http.MethodGet, s.base+"/api/v1/operations?limit=0", "")
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-s.ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// askHistories asks both daemons in turn; the small one is the floor.
func (b *bench) askHistories(ctx context.Context, servers []*server) (rows []Row, err error) {
	var held [2]string
	for i, s := range servers {
		if held[i], err = s.running(ctx, "held"); err != nil {
			return nil, err
		}
	}
	get := func(path string) func(int) error {
		return func(i int) error {
			_, err := call(ctx, http.MethodGet, servers[i].base+path, "")
			return err
		}
	}
	turn := 0
	for _, question := range []struct {
		name   string
		ask    func(i int) error
		target *Target
	}{
		{"submit", func(i int) error { _, err := servers[i].submit(ctx, "nothing"); return err }, mostOfFloor(historyMost)},
		{"pause or resume, until it took effect", func(i int) error {
			action := []string{"pause", "resume"}[turn/2%2]
			turn++
			_, err := call(ctx, http.MethodPost, servers[i].base+"/api/v1/operations/"+held[i]+"/"+action+"?wait=30s", "")
			return err
		}, mostOfFloor(historyMost)},
		{"newest page of 50", get("/api/v1/operations?limit=50"), mostOfFloor(historyMost)},
		{"newest page of failed ones of a job", get("/api/v1/operations?limit=50&status=failed&job=rare"), nil},
		{"count of one job", get("/api/v1/operations?limit=0&job=often"), nil},
		{"the feed's last page", get(fmt.Sprintf("/api/v1/finished?after=%d", historySmall-100)), nil},
	} {
		var took [2]times
		for range b.counts.starts {
			for i := range servers {
				began := time.Now()
				if err := question.ask(i); err != nil {
					return rows, fmt.Errorf("%s: %w", question.name, err)
				}
				took[i] = append(took[i], time.Since(began))
			}
		}
		floor := took[0].quantile(0.5)
		rows = append(rows, row(question.name+", p50", "ms", took[1].quantile(0.5), &floor, question.target, len(took[1])))
	}
	return rows, nil
}

// generate makes a storage with n operations that have ended within the last thirty days: records without logs.
func (b *bench) generate(n int) (storage string, err error) {
	if storage, err = b.folder("storage"); err != nil {
		return "", err
	}
	info := fmt.Sprintf(`{"version":1,"next_sequence":%d,"next_finished":%d}`+"\n", n+1, n+1)
	if err := os.WriteFile(filepath.Join(storage, "storage.json"), []byte(info), 0o640); err != nil {
		return "", fmt.Errorf("generate a history: %w", err)
	}
	const writers = 4
	begin := time.Now().Add(-29 * 24 * time.Hour)
	step := 29 * 24 * time.Hour / time.Duration(n+1)
	errs := make([]error, writers)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := w; i < n && errs[w] == nil; i += writers {
				errs[w] = writeEnded(storage, uint64(i+1), begin.Add(time.Duration(i)*step))
			}
		})
	}
	group.Wait()
	return storage, errors.Join(errs...)
}

// writeEnded writes the record of an operation that has ended.
func writeEnded(storage string, number uint64, at time.Time) error {
	job, state, result := "often", statefs.Completed, statefs.Success
	if number%100 == 7 {
		job, state, result = "rare", statefs.Failed, statefs.Failure
	}
	id, err := statefs.MakeID("bench-"+job, at, 4711, number)
	if err != nil {
		return err
	}
	ended := at.Add(time.Second)
	rec := statefs.Record{
		Version: statefs.RecordVersion, ID: id, Group: "bench", Job: job,
		Params: json.RawMessage(fmt.Sprintf(`{"title":"title %d"}`, number)),
		Status: state, Result: result, Run: 1, Starts: 1, Attempts: 1, CreatedAt: at, StartedAt: &at,
		FinishedAt: &ended, UpdatedAt: ended,
		Header: json.RawMessage(`{"total":null}`), Footer: json.RawMessage(`{"result":"` + result + `"}`),
		FinishedSeq: number,
		Transitions: []statefs.PastTransition{
			{To: statefs.Queued, Cause: statefs.CauseSubmit, At: at},
			{From: statefs.Running, To: state, Cause: statefs.CauseDone, At: ended},
		},
	}
	data, err := json.Marshal(&rec)
	if err != nil {
		return err
	}
	folder := filepath.Join(storage, "operations", id.Day())
	path := filepath.Join(folder, id.String()+".json")
	err = os.WriteFile(path, data, 0o640)
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(folder, 0o750); err == nil {
			err = os.WriteFile(path, data, 0o640)
		}
	}
	return err
}
