package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/daemon/keeper"
	"github.com/jobdir/jobdir/statefs/machine"
)

// items does the work of a run that executes the command of its job once for each item.
type items struct {
	r       *Run
	op      *Op
	feed    itemFeed
	outputs *itemOutputs    // nil unless several items run at once
	notes   sync.Mutex      // held while a note is written to the journal
	wake    chan<- struct{} // wakes the monitor, which checks the sizes of the outputs
}

// itemsWork runs the command of the job once for each item, with the parallelism of the job. A
// failing command makes its item fail; the work goes on.
func itemsWork(ctx context.Context, r *Run) error {
	w := &items{r: r, op: &Op{r: r}}
	if r.def.Parallel > 1 {
		w.outputs = &itemOutputs{open: make(map[*os.File]struct{})}
	}
	monitor, err := startMonitor(r, w.outputs)
	if err != nil {
		return &Error{Code: "start_failed", Err: err}
	}
	defer monitor.stop()
	w.wake = monitor.wake
	total, err := w.count(ctx)
	if err != nil {
		return err
	}
	r.report.SetTotal(new(int64(total)))
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
	notes, err := readItemJournal(r.scratch)
	if err != nil {
		return &Error{Code: "start_failed", Err: err}
	}
	under := w.underWay(notes, written)
	lost := r.adopted && w.lost(under, notes, written)
	only, err := r.failedNames()
	if err != nil {
		return err
	}
	next, stop := iter.Pull2(r.def.Items.List(ctx, w.folder(), r.values("")))
	defer stop()
	w.feed = itemFeed{
		next: next, total: total, finished: finished, onlyNames: only, earlier: under, notes: notes,
		lost: lost, nextSlot: firstSpareSlot,
	}
	for slot := range notes {
		w.feed.nextSlot = max(w.feed.nextSlot, slot+1)
	}
	var group sync.WaitGroup
	for range max(1, min(r.def.Parallel, total)) {
		group.Go(func() { w.feed.setError(w.guardWorker()) })
	}
	group.Wait()
	if w.feed.err == nil && lost {
		r.noteCutOff()
		return &Error{
			Code: "lost", Err: errors.New("a keeper died while no daemon was there, and commands of items with it"),
		}
	}
	return w.feed.err
}

func (w *items) folder() string { return w.r.def.Folder(w.r.values("")) }

// count lists the items once, so that each log line can show the total. It reads only the names.
func (w *items) count(ctx context.Context) (int, error) {
	def := w.r.def
	if total := def.Total(w.r.params); total != nil {
		return int(*total), nil
	}
	n := 0
	for _, err := range def.Items.List(ctx, w.folder(), w.r.values("")) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if err != nil {
			return 0, &Error{Code: "items", Err: err}
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
	// earlier are the commands of items that an earlier daemon left running. These items are handed
	// out first, and skipped later when the list reaches them.
	earlier []Command
	// notes are an earlier daemon's notes by slot. nextSlot is the next slot for an item whose
	// number is one of these slots.
	notes    map[int]*itemNote
	nextSlot int
	// lost means that this run begins no items except those with earlier commands.
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
	if len(f.earlier) > 0 {
		a := f.earlier[0]
		f.earlier = f.earlier[1:]
		f.finished[a.name]++
		if f.onlyNames != nil {
			f.onlyNames.take(a.name)
		}
		number := a.itemNumber(f.notes)
		return catalog.Item{Name: a.name}, itemPosition{number, a.number, max(f.total, number)}, true
	}
	if f.lost {
		return item, at, false
	}
	for {
		item, err, ok := f.next()
		if err != nil {
			f.err = &Error{Code: "items", Err: err}
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

// guardWorker converts a panic of one worker to the end of the run, which also ends the other
// workers.
func (w *items) guardWorker() error {
	err := w.r.guard(func(ctx context.Context, _ *Run) error { return w.worker(ctx) })
	if failed, ok := errors.AsType[*Error](err); ok && failed.Code == panicCode {
		w.r.End(failed)
	}
	return err
}

func (w *items) worker(ctx context.Context) error {
	for {
		if err := w.r.checkpoint(ctx, betweenItems); err != nil {
			return err
		}
		item, at, ok := w.feed.take()
		if !ok {
			return nil
		}
		if err := w.runItem(ctx, item, at); err != nil {
			return err
		}
	}
}

// runItem runs the command for one item. Its error ends the whole work; a failed command only fails
// the item.
func (w *items) runItem(ctx context.Context, item catalog.Item, at itemPosition) error {
	r := w.r
	together := r.def.Parallel > 1
	note := w.feed.notes[at.slot]
	resumed := r.hasUnclaimed(at.slot)
	if !resumed || note == nil { // the journal of a command that goes on may be gone with the scratch folder
		note = &itemNote{Slot: at.slot, Item: at.number, Name: []byte(item.Name), Boot: machine.This().Boot}
		if err := w.journal(note); err != nil {
			return &Error{Code: "start_failed", Err: err}
		}
	}
	said := w.beginItem(item, at, together, resumed)
	said.logEnd = func(text string) error { return w.logItemEnd(note, text) }
	output, err := w.output(together, at.slot, resumed)
	if err != nil {
		said.Fail(err)
		return &Error{Code: "start_failed", Err: err}
	}
	defer func() {
		if r.report.itemsComplete() {
			output.close()
		}
		output.detach() // without a result line the next daemon may need the output
	}()
	result := itemResultFile(at.slot)
	p, exit, err := r.execute(ctx, at.slot, func() *keeper.Command {
		return r.command(at.slot, item.Name, output.File, r.timeout.Remaining(), r.values(item.Name),
			"JOBDIR_ITEM="+item.Name, fmt.Sprintf("JOBDIR_ITEM_NUMBER=%d", at.number), "JOBDIR_RESULT="+r.scratch.path(result))
	})
	if errors.Is(err, ErrDetached) {
		if p != nil {
			output.detach()
			return err
		}
		note.Withdrawn = true
		return errors.Join(err, w.journal(note))
	}
	if p != nil {
		r.usage.add(exit)
		defer w.acknowledge(p)
	}
	if together {
		said.head += output.text()
	}
	if exit.TimedOut {
		r.End(r.timeoutError())
	}
	if died := cmp.Or(err, exitError(exit)); errors.Is(died, keeper.ErrKeeperDied) || errors.Is(died, keeper.ErrNoKeeper) {
		r.End(died) // no verdict on the item, which the next run repeats
	}
	if ctx.Err() != nil && (err != nil || exit.Cause != "" || exit.Err != nil) {
		said.abandon()
		return context.Cause(ctx)
	}
	line := ""
	if err == nil {
		if err = exitError(exit); err != nil {
			line = w.lastLine(output)
		}
	}
	w.endItem(said, item, result, err, line)
	return nil
}

// lastLine returns the last non-empty line of the command of a failed item.
func (w *items) lastLine(output *itemOutput) string {
	if output.outputs != nil {
		return lastText(strings.Split(output.text(), "\n"), nil)
	}
	return lastText(w.r.LastLines(), itemBegins)
}

// acknowledge tells the keeper that the item has its result line, or will be done again. If the line
// could not be written, the acknowledgement waits until the record contains the outcome.
func (w *items) acknowledge(p keeper.Running) {
	if w.r.report.itemsComplete() {
		p.Acknowledge()
		return
	}
	w.r.noteEnd(p)
}

// beginItem logs that an item begins, unless an earlier daemon has logged it.
func (w *items) beginItem(item catalog.Item, at itemPosition, together, resumed bool) *Item {
	if resumed && !together {
		begun := &Item{op: w.op, number: at.number, name: item.Name}
		w.op.open(begun, at.total)
		return begun
	}
	return w.op.beginItem(at.number, at.total, item.Name, "", together)
}

// underWay returns the commands that an earlier daemon left running. Commands whose items already
// have a result line are only acknowledged: the earlier daemon died before it did that.
func (w *items) underWay(notes map[int]*itemNote, written map[itemKey]bool) (under []Command) {
	for _, a := range w.r.unclaimed() {
		if !written[itemKey{a.itemNumber(notes), a.name}] {
			under = append(under, a)
			continue
		}
		p := w.r.claim(a.number)
		w.r.ended(p)
		p.Acknowledge()
	}
	return under
}

// itemNumber returns the number of the item of a command.
func (a Command) itemNumber(notes map[int]*itemNote) int {
	if note := notes[a.number]; note != nil {
		return note.Item
	}
	return a.number
}

// endItem logs the end of an item, with the result of its command. The result file is removed once
// the item has its line. line is the last line of a failed command's output; the log already
// contains it.
func (w *items) endItem(said *Item, item catalog.Item, result string, failure error, line string) {
	fields, resultErr := w.r.readResult(result)
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
	if w.r.report.itemsComplete() {
		_ = w.r.scratch.drop(result) // otherwise it goes with the folder
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
