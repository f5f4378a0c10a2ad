package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs/machine"
)

// itemsWork runs the command of the job once for each item, with the parallelism of the job. A
// failing command makes its item fail; the work goes on.
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
	written := make(map[itemKey]bool) // items that this run finished under an earlier daemon
	if err := r.inherit(func(result itemResult) {
		finished.add(result)
		if r.adopted && result.Run == r.number {
			written[itemKey{result.Item, result.name()}] = true
		}
	}); err != nil {
		return err
	}
	notes, err := r.readItemJournal()
	if err != nil {
		return &workError{code: "start_failed", err: err}
	}
	under := r.underWay(notes, written)
	lost := r.adopted && r.lostItems(under, notes, written)
	defer r.endUnclaimed()
	only, err := r.failedNames()
	if err != nil {
		return err
	}
	next, stop := iter.Pull2(r.def.Items.List(ctx, r.itemsFolder(), r.values("")))
	defer stop()
	feed := &itemFeed{
		next: next, total: total, finished: finished, onlyNames: only, adopted: under, notes: notes,
		lost: lost, nextSlot: firstSpareSlot,
	}
	for slot := range notes {
		feed.nextSlot = max(feed.nextSlot, slot+1)
	}
	var group sync.WaitGroup
	for range max(1, min(r.def.Parallel, total)) {
		group.Go(func() { feed.setError(r.guardItems(feed)) })
	}
	group.Wait()
	if feed.err == nil && lost {
		r.gate.noteCutOff()
		return &workError{code: "lost", err: errItemsLost}
	}
	return feed.err
}

func (r *run) values(item string) catalog.Values {
	return catalog.Values{Params: r.params, ID: r.id.String(), Item: item, Steps: r.step.list}
}

func (r *run) itemsFolder() string { return r.def.Folder(r.values("")) }

// countItems lists the items once, so that each log line can show the total. It reads only the
// names.
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

// itemFeed hands out the items in order, one at a time.
type itemFeed struct {
	mu     sync.Mutex
	next   func() (catalog.Item, error, bool)
	number int
	total  int
	err    error
	// finished are the items that earlier runs did; they are skipped.
	finished finishedNames
	// onlyNames are the items to do; nil means all.
	onlyNames finishedNames
	// adopted are the items that an earlier daemon left running. They are handed out first, and
	// skipped later when the list reaches them.
	adopted []adoptedCommand
	// notes are an earlier daemon's notes by slot. nextSlot is the next slot for an item whose
	// number is one of these slots.
	notes    map[int]*itemNote
	nextSlot int
	// lost means that this run begins no items except the adopted ones.
	lost bool
}

// itemPosition is the position of an item. slot identifies its command and files within the run. It
// is the item's number, unless an item left by an earlier daemon has that slot, because files were
// added or removed since.
type itemPosition struct{ number, slot, total int }

// firstSpareSlot is the first slot that cannot be the number of an item.
const firstSpareSlot = 1 << 30

func (f *itemFeed) take() (item catalog.Item, at itemPosition, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return item, at, false
	}
	if len(f.adopted) > 0 {
		a := f.adopted[0]
		f.adopted = f.adopted[1:]
		f.finished[a.name]++
		if f.onlyNames != nil {
			f.onlyNames.take(a.name)
		}
		number := a.number
		if note := f.notes[a.number]; note != nil {
			number = note.Item
		}
		return catalog.Item{Name: a.name}, itemPosition{number, a.number, max(f.total, number)}, true
	}
	if f.lost {
		return item, at, false
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
		f.total = max(f.total, f.number) // files may have been added since the count
		if !f.finished.take(item.Name) && (f.onlyNames == nil || f.onlyNames.take(item.Name)) {
			slot := f.number
			if f.notes[slot] != nil {
				slot = f.nextSlot
				f.nextSlot++
			}
			return item, itemPosition{f.number, slot, f.total}, true
		}
	}
}

func (f *itemFeed) setError(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

// guardItems converts a panic of one worker to the end of the run, which also ends the other
// workers.
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
		if err := r.itemCommand(ctx, feed, item, at); err != nil {
			return err
		}
	}
}

// itemCommand runs the command for one item. Its error ends the whole work; a failed command only
// fails the item.
func (r *run) itemCommand(ctx context.Context, feed *itemFeed, item catalog.Item, at itemPosition) error {
	together := r.def.Parallel > 1
	note := feed.notes[at.slot]
	if !r.commands.hasUnclaimed(at.slot) {
		note = &itemNote{Slot: at.slot, Item: at.number, Name: []byte(item.Name), Boot: machine.This().Boot}
		if err := r.journalItem(note); err != nil {
			return &workError{code: "start_failed", err: err}
		}
	}
	said := r.beginItem(item, at, together)
	said.note = note
	var output *itemOutput
	var err error
	if !r.commands.hasUnclaimed(at.slot) && r.adopted {
		err = r.clearItem(at.slot)
	}
	if err == nil {
		output, err = r.itemOutput(together, at.slot)
	}
	if err != nil {
		said.Fail(err)
		return &workError{code: "start_failed", err: err}
	}
	defer func() {
		if r.report.itemsComplete() {
			output.close()
		}
		output.detach() // without a result line the next daemon may need the output
	}()
	result := itemResultFile(at.slot)
	p, exit, err := r.execute(ctx, at.slot, func() *keeper.Command {
		return r.command(at.slot, item.Name, output.File, r.timeout.remaining(time.Now()), r.values(item.Name),
			"JOBDIR_ITEM="+item.Name, fmt.Sprintf("JOBDIR_ITEM_NUMBER=%d", at.number), "JOBDIR_RESULT="+r.scratch.path(result))
	})
	if errors.Is(err, errDetached) {
		if p != nil {
			output.detach()
			return err
		}
		note.Withdrawn = true
		return errors.Join(err, r.journalItem(note))
	}
	if p != nil {
		r.usage.add(exit)
		defer r.acknowledgeItem(p)
	}
	if together {
		said.head += output.text()
	}
	if exit.TimedOut {
		r.timedOut()
	}
	if died := cmp.Or(err, exitError(exit)); errors.Is(died, keeper.ErrKeeperDied) || errors.Is(died, keeper.ErrNoKeeper) {
		r.end(died) // no verdict on the item, which the next run repeats
	}
	if ctx.Err() != nil && (err != nil || exit.Cause != "" || exit.Err != nil) {
		said.abandon()
		return context.Cause(ctx)
	}
	line := ""
	if err == nil {
		if err = exitError(exit); err != nil {
			line = r.itemLastLine(output)
		}
	}
	r.endItem(said, item, result, err, line)
	return nil
}

// acknowledgeItem tells the keeper that the item has its result line, or will be done again. If the
// line could not be written, the acknowledgement waits until the record contains the outcome.
func (r *run) acknowledgeItem(p keeper.Running) {
	if r.report.itemsComplete() {
		p.Acknowledge()
		return
	}
	r.commands.noteEnd(p)
}

// beginItem logs that an item begins, unless an earlier daemon has logged it.
func (r *run) beginItem(item catalog.Item, at itemPosition, together bool) *Item {
	op := &Op{r}
	switch {
	case r.commands.hasUnclaimed(at.slot):
		return op.resumeItem(at.number, at.total, item.Name, together)
	case together:
		return op.Parallel(at.number, at.total, item.Name)
	}
	return op.Item(at.number, at.total, item.Name)
}

// underWay returns the items that an earlier daemon left running. Commands whose items already have
// a result line are only acknowledged: the earlier daemon had not told their keeper yet.
func (r *run) underWay(notes map[int]*itemNote, written map[itemKey]bool) (under []adoptedCommand) {
	for _, a := range r.commands.unclaimed() {
		number := a.number
		if note := notes[a.number]; note != nil {
			number = note.Item
		}
		if !written[itemKey{number, a.name}] {
			under = append(under, a)
			continue
		}
		p := r.commands.claim(a.number)
		r.gate.ended(p)
		p.Acknowledge()
	}
	return under
}

// endUnclaimed ends the commands of an earlier daemon that no worker claimed before the work ended.
func (r *run) endUnclaimed() {
	cause := r.endCause()
	if errors.Is(cause, errDetached) || cause != nil && isClosed(r.detaching) {
		r.detached.Store(r.detached.Load() || len(r.commands.unclaimed()) > 0)
		return
	}
	for _, a := range r.commands.unclaimed() {
		p := r.commands.claim(a.number)
		r.endCommand(p, cause)
		<-p.Done()
		r.gate.ended(p)
		p.Acknowledge()
	}
}

// endItem logs the end of an item, with the result of its command. The result file is removed once
// the item has its line. line is the last line of a failed command's output; the log already
// contains it.
func (r *run) endItem(said *Item, item catalog.Item, result string, failure error, line string) {
	fields, resultErr := r.readResult(result)
	if failure == nil {
		failure = resultErr
	}
	switch {
	case failure != nil && line != "":
		said.Fail(fmt.Errorf("%w: %s", failure, line), failure.Error())
	case failure != nil:
		said.Fail(failure)
	default:
		said.OK(itemAttrs(item, fields)...)
	}
	if r.report.itemsComplete() {
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
