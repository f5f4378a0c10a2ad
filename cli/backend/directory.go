package backend

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/cli/config"
	"github.com/jobdir/jobdir/cli/exit"
	"github.com/jobdir/jobdir/client"
	"github.com/jobdir/jobdir/daemon/history"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/statefs/steps"
)

// directory is the backend of a storage without a daemon: it reads the files, and leaves requests for the next daemon.
type directory struct {
	tree    *statefs.Tree
	catalog catalog.Options
	conf    *config.Loaded
}

// without returns an error for what only a daemon can do.
func (d *directory) without(why string) error {
	return &client.UnreachableError{Address: d.tree.Dir(), Err: errors.New(why)}
}

func (d *directory) LiveIDs(context.Context) ([]statefs.ID, error) {
	listing, err := d.tree.List()
	if err != nil {
		return nil, err
	}
	var ids []statefs.ID
	for _, marker := range listing.Markers {
		if !slices.Contains(ids, marker.ID) {
			ids = append(ids, marker.ID)
		}
	}
	return ids, nil
}

func (d *directory) Numbered(_ context.Context, number uint64) ([]statefs.ID, error) {
	return d.tree.FindByNumber(number)
}

func (d *directory) Live(_ context.Context, attention bool) ([]client.Operation, error) {
	listing, err := d.tree.List()
	if err != nil {
		return nil, err
	}
	var all []client.Operation
	for _, marker := range listing.Markers {
		op := client.Operation{ID: marker.ID, State: marker.State}
		stamp, err := d.tree.Stamp(marker.File)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // it changed since the listing
		case err == nil:
			op.CreatedAt = stamp.At // of the marker: Since of the operation
		}
		switch rec, err := d.tree.ReadRecord(marker.ID); {
		case errors.Is(err, fs.ErrNotExist):
			op.Foreign = true
		case err == nil:
			d.tree.Freshen(rec)
			op.StalledAt, op.Progress, op.Reason, op.Error = rec.StalledAt, rec.Progress, rec.Reason, rec.Error
			op.Attention = statefs.AttentionOf(rec.ID, op.State, rec)
		}
		if !attention || op.State.NeedsPerson() || op.Attention != nil {
			all = append(all, op)
		}
	}
	slices.SortFunc(all, func(a, b client.Operation) int { return cmp.Compare(a.ID.Sequence(), b.ID.Sequence()) })
	return all, nil
}

// Ended reads records, newest first, until it has found enough matches.
func (d *directory) Ended(ctx context.Context, q *history.Query) (*client.Page, error) {
	page := &client.Page{}
	days, err := d.tree.Days()
	if err != nil {
		return nil, err
	}
	for _, day := range days {
		files, err := d.tree.ListDay(day)
		if err != nil {
			return nil, err
		}
		for _, id := range files.Records {
			if len(page.Operations) == q.Limit || ctx.Err() != nil {
				return page, ctx.Err()
			}
			rec, err := d.tree.ReadRecord(id)
			if err != nil || !rec.Status.Terminal() {
				continue
			}
			if row := history.RowOf(rec); q.Matches(row.Pack()) {
				page.Operations = append(page.Operations, client.Operation{
					ID: rec.ID, State: rec.Status, Result: rec.Result, CreatedAt: rec.CreatedAt, FinishedAt: rec.FinishedAt,
					Error: rec.Error,
				})
			}
		}
	}
	return page, nil
}

func (d *directory) Operation(_ context.Context, id statefs.ID) (*client.Operation, error) {
	rec, err := statefs.ReadSubmitted(d.tree, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.NotFoundf("operation '%s' has no record in %s", id, d.tree.Dir())
	}
	if err != nil {
		return nil, err
	}
	if state, err := d.tree.State(id); err == nil && !rec.Status.Terminal() {
		rec.Status = state // the marker has the state
	}
	d.tree.Freshen(rec)
	// A daemon adds this to a record.
	var graph steps.Graph
	if len(rec.Steps) > 0 {
		if def, err := catalog.Stored(d.tree, rec.Definition); err == nil {
			graph = def.Graph()
		}
	}
	state := rec.Status
	if rec.Trailing {
		state = statefs.Trailing
	}
	op := &client.Operation{
		ID: id, State: state, Steps: steps.Views(rec.Steps, graph, time.Now()),
		Attention: statefs.AttentionOf(rec.ID, state, rec),
	}
	op.Raw, err = json.Marshal(struct {
		*statefs.Record
		Steps     []steps.View       `json:"steps,omitempty"`
		Attention *statefs.Attention `json:"attention,omitempty"`
	}{rec, op.Steps, op.Attention})
	return op, err
}

// step reads a step of an operation.
func (d *directory) step(id statefs.ID, name string) (*steps.Step, error) {
	rec, err := statefs.ReadSubmitted(d.tree, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.NotFoundf("operation %s not found in %s", id, d.tree.Dir())
	}
	if err != nil {
		return nil, err
	}
	step := steps.Find(rec.Steps, name)
	if step == nil {
		return nil, exit.NotFoundf("operation %s has no step %q", id, name)
	}
	return step, nil
}

// noLog is the log of an operation that has written nothing.
var noLog = io.NopCloser(strings.NewReader(""))

func (d *directory) Log(_ context.Context, id statefs.ID, offset int64) (io.ReadCloser, error) {
	if _, err := statefs.ReadSubmitted(d.tree, id); errors.Is(err, fs.ErrNotExist) {
		return nil, exit.NotFoundf("operation %s not found in %s", id, d.tree.Dir())
	}
	log, err := d.tree.OpenLog(id)
	if errors.Is(err, fs.ErrNotExist) {
		return noLog, nil
	}
	if err != nil {
		return nil, err
	}
	if _, err := log.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("read the log of %s: %w", id, err), log.Close())
	}
	return log, nil
}

func (d *directory) Follow(ctx context.Context, id statefs.ID, offset int64, w io.Writer) (*client.Footer, error) {
	log, err := d.Log(ctx, id, offset)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if _, err := io.Copy(w, log); err != nil {
		return nil, fmt.Errorf("write the log: %w", err)
	}
	if _, err := d.tree.State(id); err == nil {
		return nil, d.without("the operation has not ended, and its log is followed once one is started: 'jobdir serve'")
	}
	return nil, nil
}

func (d *directory) StepOutput(_ context.Context, id statefs.ID, name string, run int) (*client.StepOutput, error) {
	step, err := d.step(id, name)
	if err != nil {
		return nil, err
	}
	if _, _, is := step.OutputOf(run, 0); !is {
		return nil, exit.NotFoundf("step %s of operation %s has no run %d: %s", name, id, run,
			steps.DescribeRuns(step.Runs()))
	}
	out := &client.StepOutput{Run: cmp.Or(run, step.Run), Runs: step.Runs()}
	out.ReadCloser, err = d.openStepLog(id, step, func(size int64) (from, to int64) {
		from, to, _ = step.OutputOf(run, size)
		return from, to
	})
	if errors.Is(err, fs.ErrNotExist) {
		out.ReadCloser, err = noLog, nil
	}
	return out, err
}

func (d *directory) StepLog(_ context.Context, id statefs.ID, name string, last int64) (io.ReadCloser, error) {
	step, err := d.step(id, name)
	if err != nil {
		return nil, err
	}
	return d.openStepLog(id, step, func(size int64) (from, to int64) {
		from, to = step.Output(size)
		return max(from, to-last), to
	})
}

// openStepLog opens the log of a step between two offsets, which follow from its size.
func (d *directory) openStepLog(id statefs.ID, step *steps.Step, between func(size int64) (from, to int64),
) (io.ReadCloser, error) {
	log, err := d.tree.OpenStepLog(id, step)
	if err != nil {
		return nil, err
	}
	info, err := log.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the output of step %s of %s: %w", step.Name, id, err), log.Close())
	}
	from, to := between(info.Size())
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(log, from, to-from), log}, nil
}
