package work

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/steps"
	"github.com/jobdir/jobdir/stream"
)

// Handler is Go code that does the work of a job.
type Handler struct {
	// Run does the work. It returns nil if it finished, even if items failed, and an error if the
	// work cannot be done. After a cancel, or when the daemon stops, ctx ends and Sleep and
	// Checkpoint return its cause: Run should return that.
	Run func(ctx context.Context, op *Op) error
	// Total returns the number of items for the header of the stream, if the parameters alone
	// determine it. It must return quickly. It may be nil, and may return nil.
	Total func(params catalog.Params) *int64
}

// Handlers maps the names that definitions use to handlers.
type Handlers map[string]Handler

// Op is the operation as its handler sees it. All methods are safe for concurrent use.
type Op struct {
	r        *Run
	parallel atomic.Bool // several items may run concurrently
	endMu    sync.Mutex  // held while an item ends
	mu       sync.Mutex  // guards item
	item     *Item       // the item begun last

	earlierMu sync.Mutex    // guards what follows
	finished  finishedNames // by earlier runs; nil until a handler calls Finished
	only      finishedNames // nil if all items are to be done
}

// ID returns the ID of the operation.
func (o *Op) ID() string { return o.r.id.String() }

// RunNumber returns the number of this run, beginning with 1.
func (o *Op) RunNumber() int { return o.r.number }

// Step returns the name of the step that the handler runs, "" for a job without steps.
func (o *Op) Step() string { return o.r.step.name() }

// StepOutput returns an output of an earlier step as JSON, or false if it does not exist.
func (o *Op) StepOutput(step, name string) (json.RawMessage, bool) {
	s := steps.Find(o.r.step.list, step)
	if s == nil {
		return nil, false
	}
	value, ok := s.Outputs[name]
	return value, ok
}

// Params returns the parameters, validated and with their defaults.
func (o *Op) Params() catalog.Params { return o.r.params }

// LaneEnv returns the variables that the lane gives to its runs, as NAME=value, including this
// run's turn of the rotated values. Commands get them in their environment.
func (o *Op) LaneEnv() []string { return lastOfEachName(slices.Clone(o.r.laneEnv)) }

// Item begins item i of total, counting from 1: it prints "[ i / total ] Processing 'name'..." and
// counts as progress. End the item with its OK or Fail, or with those of the Op, which end the item
// begun last.
func (o *Op) Item(i, total int, name string) *Item { return o.beginItem(i, total, name, "", false) }

// File is Item for a file: it prints "[ i / total ] Processing file 'name'...".
func (o *Op) File(i, total int, name string) *Item {
	return o.beginItem(i, total, name, "file ", false)
}

// Parallel is Item for handlers that process several items at once. The lines of an item are
// printed when it ends, so that they stay together in the log. The goroutine that processes the
// item must use the item's own Sleep and Checkpoint, so that a pause knows when all items have
// stopped.
func (o *Op) Parallel(i, total int, name string) *Item { return o.beginItem(i, total, name, "", true) }

// beginItem begins an item. Its line is printed at once, or with its end if it runs together with others.
func (o *Op) beginItem(i, total int, name, kind string, together bool) *Item {
	item := &Item{op: o, number: i, name: name}
	line := fmt.Sprintf("[ %d / %d ] Processing %s'%s'...", i, total, kind, stream.Printable(name))
	if together {
		o.parallel.Store(true)
		item.head = line + "\n"
	}
	o.open(item, total)
	if !together {
		o.r.logLine(line)
	}
	return item
}

// open notes an item that has begun. An item that began under an earlier daemon has printed its line there.
func (o *Op) open(item *Item, total int) {
	o.r.gate.begin()
	o.r.report.SetTotal(new(int64(total)))
	o.mu.Lock()
	o.item = item
	o.mu.Unlock()
}

// OK ends the item begun last as successful. See Item.OK.
func (o *Op) OK(attrs ...slog.Attr) {
	if item := o.currentItem(); item != nil {
		item.OK(attrs...)
	}
}

// Fail ends the item begun last as failed. See Item.Fail.
func (o *Op) Fail(err error, line ...string) {
	if item := o.currentItem(); item != nil {
		item.Fail(err, line...)
	}
}

func (o *Op) currentItem() *Item {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.item
}

// Logf appends a line to the log.
func (o *Op) Logf(format string, args ...any) { o.r.logLine(fmt.Sprintf(format, args...)) }

// Write appends p to the log unchanged, so that an Op can serve as an io.Writer.
func (o *Op) Write(p []byte) (int, error) {
	defer o.r.noteLogWrite()
	if err := o.r.retryWhileExhausted(o.r.ctx, o.r.log.Open); err != nil {
		return 0, err
	}
	return o.r.log.Write(p)
}

// Sleep waits for d, not counting the time in which the operation is paused. It is a checkpoint
// throughout: a pause or a cancel takes effect at once. The error is the cause why the work must
// end.
func (o *Op) Sleep(d time.Duration) error { return o.r.sleep(o.r.ctx, o.waitPlace(), d) }

// Checkpoint is where a pause takes effect: it waits while the operation is paused. The error is
// the cause why the work must end; return it. A goroutine that has an item of Parallel open uses
// the item's Checkpoint.
func (o *Op) Checkpoint() error { return o.r.checkpoint(o.r.ctx, o.waitPlace()) }

// waitPlace returns where a goroutine that waits through the Op waits: work with one item at a time
// waits inside the item.
func (o *Op) waitPlace() waitPlace { return waitPlace(!o.parallel.Load()) }

// Progress reports that done of total units are done; total 0 means unknown. phase is text for
// people and may be empty.
func (o *Op) Progress(done, total int64, phase string) {
	var known *int64
	if total > 0 {
		known = &total
	}
	o.r.setProgress(done, known, phase)
}

// Result sets a member of the footer. value is encoded as JSON. A name that the daemon uses in the
// footer, such as "state", is refused.
func (o *Op) Result(name string, value any) error {
	if name == "" || footerNames[name] {
		return fmt.Errorf("result %q: the footer has a member of this name already", name)
	}
	f, err := newField(name, value)
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	o.r.report.setField(f)
	return nil
}

// Artifact creates a file that is kept with the operation and listed in its footer. name must be
// relative and stay inside the artifacts folder. The caller closes the file.
func (o *Op) Artifact(name string) (*os.File, error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("artifact %q: the name leads out of the folder of artifacts", name)
	}
	o.r.artifacts.Store(true)
	dir := o.r.host.Owner.ArtifactsPath(o.r.id)
	if err := files.MakeFolder(dir); err != nil {
		return nil, fmt.Errorf("artifact %q: %w", name, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("artifact %q: %w", name, err)
	}
	defer func() { _ = root.Close() }() // nothing was written through it
	if parent := filepath.Dir(name); parent != "." {
		if err := root.MkdirAll(parent, 0o750); err != nil {
			return nil, fmt.Errorf("artifact %q: %w", name, err)
		}
	}
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return nil, fmt.Errorf("artifact %q: %w", name, err)
	}
	if err := f.Chmod(0o640); err != nil { // independent of the umask
		return nil, fmt.Errorf("artifact %q: %w", name, errors.Join(err, f.Close()))
	}
	return f, nil
}

// Item is one unit of work of a run.
type Item struct {
	op     *Op
	number int
	name   string
	head   string // the first line, if it is printed together with the last
	ended  bool
	// logEnd writes the end of a command's item to the log; nil for an item of a handler.
	logEnd func(text string) error
}

// OK ends the item as successful: it prints "  OK." and adds the item to the footer's
// processed_files. attrs are further members of its entry there, such as slog.Int64("size_bytes",
// n).
func (i *Item) OK(attrs ...slog.Attr) { i.end("  OK.", nil, attrs) }

// Fail ends the item as failed: it prints "  FAIL: " and the error, or line if given, and adds the
// item to the footer's failed_files with the error.
func (i *Item) Fail(err error, line ...string) {
	if err == nil {
		err = errors.New("failed")
	}
	said := err.Error()
	if len(line) > 0 {
		said = line[0]
	}
	i.end("  FAIL: "+stream.Printable(said), err, nil)
}

// begunToEnd marks the item as ended, and reports whether this call did.
func (i *Item) begunToEnd() bool {
	i.op.mu.Lock()
	defer i.op.mu.Unlock()
	first := !i.ended
	i.ended = true
	return first
}

// abandon ends the item because the work must end: its output so far goes to the log, and it counts
// as not done.
func (i *Item) abandon() {
	if !i.begunToEnd() {
		return
	}
	if i.head != "" {
		i.op.r.logLine(strings.TrimSuffix(i.head, "\n"))
	}
	i.op.r.gate.end()
}

// Sleep is Op.Sleep for the goroutine that does this item.
func (i *Item) Sleep(d time.Duration) error { return i.op.r.sleep(i.op.r.ctx, insideItem, d) }

// Checkpoint is Op.Checkpoint for the goroutine that does this item.
func (i *Item) Checkpoint() error { return i.op.r.checkpoint(i.op.r.ctx, insideItem) }

// end has an effect only once per item; a second end is a mistake of the handler and is ignored.
func (i *Item) end(line string, failure error, attrs []slog.Attr) {
	if !i.begunToEnd() {
		return
	}
	i.write(line, failure, attrs)
	done, total := i.op.r.report.done()
	i.op.r.setProgress(done, total, "")
	i.op.r.gate.end()
}

// write writes the item to the log and the report, in the same order for all items. Values that the
// handler gave may panic when they are formatted.
func (i *Item) write(line string, failure error, attrs []slog.Attr) {
	i.op.r.lock(i.op.r.ctx, &i.op.endMu)
	defer i.op.endMu.Unlock()
	if i.logEnd == nil {
		i.op.r.logLine(i.head + line)
	} else if err := i.logEnd(i.head + line + "\n"); err != nil {
		i.op.r.End(&Error{Code: "log_failed", Err: err})
	}
	i.op.r.keepItem(i.op.r.report.addItem(i.number, i.name, failure, attrs))
}

// work runs the handler.
func (h Handler) work(ctx context.Context, r *Run) error {
	r.begun() // the descriptors of a handler are not budgeted
	err := h.Run(ctx, &Op{r: r})
	if err == nil {
		return nil
	}
	code := "handler_failed"
	if f, ok := errors.AsType[*AttemptError](err); ok {
		code = cmp.Or(f.Code, code)
	}
	return &Error{Code: code, Err: err}
}

// Finished reports whether an earlier run of this operation finished an item of this name. Its work
// need not be done again; the earlier result is in the footer. Call Finished once for each item,
// before the item begins: if several items share a name, each call is about the next one. The first
// call loads the results of earlier runs. A handler that never calls it does all of its work in
// each run.
func (o *Op) Finished(name string) bool {
	o.earlierMu.Lock()
	defer o.earlierMu.Unlock()
	if o.finished == nil {
		o.finished = make(finishedNames)
		var err error
		if o.only, err = o.r.failedNames(); err == nil {
			err = o.r.inherit(o.finished.add)
		}
		if err != nil {
			o.r.End(err)
		}
	}
	return o.finished.take(name) || o.only != nil && !o.only.take(name)
}
