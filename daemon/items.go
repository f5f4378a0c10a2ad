package daemon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"

	"github.com/jobdir/jobdir/catalog"
)

// itemsWork runs the command of the job once for each of its items, as many at a time as the job says. A command that fails
// makes its item fail, and the work goes on.
func itemsWork(ctx context.Context, r *run) error {
	monitor, err := startMonitor(r)
	if err != nil {
		return &workError{code: "start_failed", err: err}
	}
	defer monitor.stop()
	r.outputs.wake = monitor.wake
	total, err := r.countItems(ctx)
	if err != nil {
		return err
	}
	r.report.setTotal(int64(total))
	finished := make(finishedNames)
	if err := r.inherit(finished.note); err != nil {
		return err
	}
	only, err := r.onlyFailed()
	if err != nil {
		return err
	}
	next, stop := iter.Pull2(r.def.Items.List(ctx, r.itemsFolder(), r.values("")))
	defer stop()
	feed := &itemFeed{next: next, total: total, finished: finished, only: only}
	var group sync.WaitGroup
	for range max(1, min(r.def.Parallel, total)) {
		group.Go(func() { feed.fail(r.guardItems(feed)) })
	}
	group.Wait()
	return feed.err
}

func (r *run) values(item string) catalog.Values {
	return catalog.Values{Params: r.params, ID: r.id.String(), Item: item}
}

func (r *run) itemsFolder() string { return r.def.Folder(r.values("")) }

// countItems goes over the items once, so that each line can say how many there are. Only the names are looked at.
func (r *run) countItems(ctx context.Context) (int, error) {
	if total := r.def.Total(r.params); total != nil {
		return int(*total), nil
	}
	n := 0
	for _, err := range r.def.Items.List(ctx, r.itemsFolder(), r.values("")) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if err != nil {
			return 0, &workError{code: "items", err: err}
		}
		n++
	}
	return n, nil
}

// itemFeed hands the items out, one at a time, in order.
type itemFeed struct {
	mu     sync.Mutex
	next   func() (catalog.Item, error, bool)
	number int
	total  int
	err    error
	// finished are passed over: an earlier run has done them.
	finished finishedNames
	// only are the items to be done; nil when all are.
	only finishedNames
}

func (f *itemFeed) take() (item catalog.Item, number, total int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return item, 0, 0, false
	}
	for {
		item, err, ok := f.next()
		if err != nil {
			f.err = &workError{code: "items", err: err}
			return item, 0, 0, false
		}
		if !ok {
			return item, 0, 0, false
		}
		f.number++
		f.total = max(f.total, f.number) // files may have been added since they were counted
		if !f.finished.take(item.Name) && (f.only == nil || f.only.take(item.Name)) {
			return item, f.number, f.total, true
		}
	}
}

func (f *itemFeed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

// guardItems turns a panic of one worker into the end of the run: the other workers are asked to end too.
func (r *run) guardItems(feed *itemFeed) error {
	err := r.guard(func(ctx context.Context, r *run) error { return r.itemWorker(ctx, feed) })
	if failed, ok := errors.AsType[*workError](err); ok && failed.code == panicCode {
		r.end(failed)
	}
	return err
}

func (r *run) itemWorker(ctx context.Context, feed *itemFeed) error {
	for {
		if err := r.gate.checkpoint(ctx, betweenItems); err != nil {
			return err
		}
		item, number, total, ok := feed.take()
		if !ok {
			return nil
		}
		if err := r.itemCommand(ctx, item, number, total); err != nil {
			return err
		}
	}
}

// itemCommand runs the command for one item. Its error ends the whole work; a command that fails does not.
func (r *run) itemCommand(ctx context.Context, item catalog.Item, number, total int) error {
	op := &Op{r}
	together := r.def.Parallel > 1
	begin := op.Item
	if together {
		begin = op.Parallel
	}
	said := begin(number, total, item.Name)
	output, err := r.itemOutput(together, number)
	if err != nil {
		said.Fail(err)
		return &workError{code: "start_failed", err: err}
	}
	defer output.close()
	result := fmt.Sprintf("result-%d.json", number)
	exit, err := r.execute(ctx, r.values(item.Name), output.File, false,
		"JOBDIR_ITEM="+item.Name, fmt.Sprintf("JOBDIR_ITEM_NUMBER=%d", number), "JOBDIR_RESULT="+r.scratch.path(result))
	if together {
		said.head += output.text()
	}
	if ctx.Err() != nil && (err != nil || exit.Cause != "") {
		said.abandon()
		return context.Cause(ctx)
	}
	if err == nil {
		err = exitError(exit)
	}
	r.endItem(said, item, result, err)
	return nil
}

// endItem prints the end of an item and adds what its command left as its result.
func (r *run) endItem(said *Item, item catalog.Item, result string, failure error) {
	fields, resultErr := r.takeResult(result)
	if failure == nil {
		failure = resultErr
	}
	if failure != nil {
		said.Fail(failure)
		return
	}
	var attrs []slog.Attr
	if item.Path != "" {
		attrs = append(attrs, slog.Int64("size_bytes", item.Size))
	}
	for _, f := range fields {
		attrs = append(attrs, slog.Any(f.name, f.value))
	}
	said.OK(attrs...)
}
