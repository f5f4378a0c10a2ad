package daemon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/keeper"
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
	written := make(map[int]string) // names by number of the items that this very run has finished under an earlier daemon
	if err := r.inherit(func(result itemResult) {
		finished.note(result)
		if r.adopted && result.Run == r.number {
			written[result.Item] = result.name()
		}
	}); err != nil {
		return err
	}
	under := r.underWay(written)
	defer r.endUnclaimed()
	only, err := r.onlyFailed()
	if err != nil {
		return err
	}
	next, stop := iter.Pull2(r.def.Items.List(ctx, r.itemsFolder(), r.values("")))
	defer stop()
	feed := &itemFeed{next: next, total: total, finished: finished, only: only, under: under, taken: make(map[int]bool), spare: firstSpare}
	for _, a := range under {
		feed.taken[a.number] = true
		feed.spare = max(feed.spare, a.number+1)
	}
	var group sync.WaitGroup
	for range max(1, min(r.def.Parallel, total)) {
		group.Go(func() { feed.fail(r.guardItems(feed)) })
	}
	group.Wait()
	return feed.err
}

func (r *run) values(item string) catalog.Values {
	return catalog.Values{Params: r.params, ID: r.id.String(), Item: item, Steps: r.step.list}
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
	// under are the items that were under way when an earlier daemon went away: they are handed out first, and passed over when their
	// turn comes.
	under []adopted
	// taken are the slots of those, spare the next one for an item whose number is among them.
	taken map[int]bool
	spare int
}

// spot is where an item stands. slot tells its command and its files from those of all others of the run: it is its number, unless an item
// that was under way before has that, since files have come or gone.
type spot struct{ number, slot, total int }

// firstSpare is the first slot that is no number of an item.
const firstSpare = 1 << 30

func (f *itemFeed) take() (item catalog.Item, at spot, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return item, at, false
	}
	if len(f.under) > 0 {
		a := f.under[0]
		f.under = f.under[1:]
		f.finished[a.name]++
		if f.only != nil {
			f.only.take(a.name)
		}
		number := a.number
		if number >= firstSpare {
			number = f.total
		}
		return catalog.Item{Name: a.name}, spot{number, a.number, max(f.total, number)}, true
	}
	for {
		item, err, ok := f.next()
		if err != nil {
			f.err = &workError{code: "items", err: err}
			return item, at, false
		}
		if !ok {
			return item, at, false
		}
		f.number++
		f.total = max(f.total, f.number) // files may have been added since they were counted
		if !f.finished.take(item.Name) && (f.only == nil || f.only.take(item.Name)) {
			slot := f.number
			if f.taken[slot] {
				slot = f.spare
				f.spare++
			}
			return item, spot{f.number, slot, f.total}, true
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
		item, at, ok := feed.take()
		if !ok {
			return nil
		}
		if err := r.itemCommand(ctx, item, at); err != nil {
			return err
		}
	}
}

// itemCommand runs the command for one item. Its error ends the whole work; a command that fails does not.
func (r *run) itemCommand(ctx context.Context, item catalog.Item, at spot) error {
	together := r.def.Parallel > 1
	said := r.beginItem(item, at, together)
	var output *itemOutput
	var err error
	if !r.commands.has(at.slot) && r.adopted {
		err = r.clearItem(at.slot)
	}
	if err == nil {
		output, err = r.itemOutput(together, at.slot)
	}
	if err != nil {
		said.Fail(err)
		return &workError{code: "start_failed", err: err}
	}
	defer output.close()
	result := itemResultFile(at.slot)
	p, exit, err := r.execute(ctx, at.slot, func() *keeper.Command {
		return r.command(at.slot, item.Name, output.File, r.timeout.rest(time.Now()), r.values(item.Name),
			"JOBDIR_ITEM="+item.Name, fmt.Sprintf("JOBDIR_ITEM_NUMBER=%d", at.number), "JOBDIR_RESULT="+r.scratch.path(result))
	})
	if errors.Is(err, errLeft) {
		output.leave()
		return err
	}
	if p != nil {
		r.used.add(exit)
		defer r.itemTaken(p)
	}
	if together {
		said.head += output.text()
	}
	if exit.TimedOut {
		r.timedOut()
	}
	if errors.Is(exit.Err, keeper.ErrKeeperDied) {
		r.end(exitError(exit)) // that is no verdict on the item: it is done again if the job is tried again
	}
	if ctx.Err() != nil && (err != nil || exit.Cause != "" || exit.Err != nil) {
		said.abandon()
		return context.Cause(ctx)
	}
	if err == nil {
		err = exitError(exit)
	}
	r.endItem(said, item, result, err)
	return nil
}

// itemTaken tells the keeper that the line of an item is among the results, or that the item is to be done again. When the line could not be
// written, the record has to say first what came of that.
func (r *run) itemTaken(p keeper.Running) {
	if r.report.whole() {
		p.Taken()
		return
	}
	r.commands.ended(p)
}

// beginItem prints the line of an item that begins, unless an earlier daemon has.
func (r *run) beginItem(item catalog.Item, at spot, together bool) *Item {
	op := &Op{r}
	switch {
	case r.commands.has(at.slot):
		return op.goOn(at.number, at.total, item.Name, together)
	case together:
		return op.Parallel(at.number, at.total, item.Name)
	}
	return op.Item(at.number, at.total, item.Name)
}

// underWay returns the items that an earlier daemon has left under way. What it has written down as finished it only had no time to say
// to the keeper.
func (r *run) underWay(written map[int]string) (under []adopted) {
	for _, a := range r.commands.waiting() {
		if name, ok := written[a.number]; !ok || name != a.name {
			under = append(under, a)
			continue
		}
		p := r.commands.claim(a.number)
		r.gate.ended(p)
		p.Taken()
	}
	return under
}

// endUnclaimed ends the commands of an earlier daemon that no worker has come to because the work ends.
func (r *run) endUnclaimed() {
	cause := r.endCause()
	if errors.Is(cause, errLeft) || cause != nil && isClosed(r.leaving) {
		r.left.Store(r.left.Load() || len(r.commands.waiting()) > 0)
		return
	}
	for _, a := range r.commands.waiting() {
		p := r.commands.claim(a.number)
		p.End(causeText(cause))
		<-p.Done()
		r.gate.ended(p)
		p.Taken()
	}
}

// endItem prints the end of an item and adds what its command left as its result, which goes when the line of the item is written.
func (r *run) endItem(said *Item, item catalog.Item, result string, failure error) {
	fields, resultErr := r.readResult(result)
	if failure == nil {
		failure = resultErr
	}
	if failure != nil {
		said.Fail(failure)
	} else {
		said.OK(itemAttrs(item, fields)...)
	}
	if r.report.whole() {
		_ = r.scratch.drop(result) // otherwise it goes with the folder
	}
}

func itemAttrs(item catalog.Item, fields []field) []slog.Attr {
	var attrs []slog.Attr
	if item.Path != "" {
		attrs = append(attrs, slog.Int64("size_bytes", item.Size))
	}
	for _, f := range fields {
		attrs = append(attrs, slog.Any(f.name, f.value))
	}
	return attrs
}
