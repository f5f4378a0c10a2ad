package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/steps"
)

// Handler is Go code that does the work of a job.
type Handler struct {
	// Run does the work. It returns nil when it went to its end, also when items failed, and an error when the work cannot be
	// done. After a cancel or while the daemon stops, ctx ends and Sleep and Checkpoint return its cause: Run should return that.
	Run func(ctx context.Context, op *Op) error
	// Total says how many items there will be, for the header of the stream, when that can be told from the parameters alone and
	// at once. It may be nil, and may return nil.
	Total func(params catalog.Params) *int64
}

// Handlers are the handlers that definitions may name.
type Handlers map[string]Handler

// Op is an operation as its handler sees it. All methods are safe for concurrent use.
type Op struct{ r *run }

// ID returns the ID of the operation.
func (o *Op) ID() string { return o.r.id.String() }

// RunNumber returns which start of the operation this is, beginning with 1.
func (o *Op) RunNumber() int { return o.r.number }

// Step returns the name of the step that the handler does, "" for a job without steps.
func (o *Op) Step() string { return o.r.step.name() }

// StepOutput returns a value that an earlier step left, as JSON; false when there is none.
func (o *Op) StepOutput(step, name string) (json.RawMessage, bool) {
	s := steps.Find(o.r.step.list, step)
	if s == nil {
		return nil, false
	}
	value, ok := s.Outputs[name]
	return value, ok
}

// Params returns the parameters, checked and with their defaults.
func (o *Op) Params() catalog.Params { return o.r.params }

// LaneEnv returns what the lane gives to its runs, as NAME=value, with those of the rotated values whose turn this run has. Commands find it in
// their environment.
func (o *Op) LaneEnv() []string { return lastOfEach(slices.Clone(o.r.laneEnv)) }

// Item begins item i of total, counting from 1: it prints "[ i / total ] Processing 'name'..." and counts as progress. The item
// ends with its OK or Fail, or with those of the Op, which are for the item begun last.
func (o *Op) Item(i, total int, name string) *Item {
	return o.begin(i, total, name, fmt.Sprintf("[ %d / %d ] Processing '%s'...", i, total, printable(name)), false)
}

// File is Item for a file: it prints "[ i / total ] Processing file 'name'...".
func (o *Op) File(i, total int, name string) *Item {
	return o.begin(i, total, name, fmt.Sprintf("[ %d / %d ] Processing file '%s'...", i, total, printable(name)), false)
}

// Parallel is Item for work that has several items under way: the lines of each are printed together when it ends, so that they
// stay together in the log. The goroutine that does the item waits through the item's own Sleep and Checkpoint, so that a pause
// knows when all items stand still.
func (o *Op) Parallel(i, total int, name string) *Item {
	return o.begin(i, total, name, fmt.Sprintf("[ %d / %d ] Processing '%s'...", i, total, printable(name)), true)
}

// goOn is Item, or Parallel, for an item that has begun under an earlier daemon: a line that was printed then is not printed again.
func (o *Op) goOn(i, total int, name string, together bool) *Item {
	if together {
		return o.Parallel(i, total, name)
	}
	return o.begin(i, total, name, "", false)
}

func (o *Op) begin(i, total int, name, line string, together bool) *Item {
	item := &Item{r: o.r, number: i, name: name}
	o.r.gate.begin()
	o.r.report.setTotal(int64(total))
	switch {
	case together:
		o.r.parallel.Store(true)
		item.head = line + "\n"
	case line != "":
		o.r.line(line)
	}
	o.r.current.Lock()
	o.r.item = item
	o.r.current.Unlock()
	return item
}

// OK ends the item begun last well. See Item.OK.
func (o *Op) OK(attrs ...slog.Attr) {
	if item := o.last(); item != nil {
		item.OK(attrs...)
	}
}

// Fail ends the item begun last badly. See Item.Fail.
func (o *Op) Fail(err error, line ...string) {
	if item := o.last(); item != nil {
		item.Fail(err, line...)
	}
}

func (o *Op) last() *Item {
	o.r.current.Lock()
	defer o.r.current.Unlock()
	return o.r.item
}

// Logf appends a line to the log.
func (o *Op) Logf(format string, args ...any) { o.r.line(fmt.Sprintf(format, args...)) }

// Write appends p to the log as it is, so that an Op can be the output of something.
func (o *Op) Write(p []byte) (int, error) {
	defer o.r.wrote()
	return o.r.log.Write(p)
}

// Sleep waits for d. Time in which the operation is paused does not count. It is a checkpoint all along: a pause or a cancel
// takes effect at once. The error is the cause for which the work is to end.
func (o *Op) Sleep(d time.Duration) error { return o.r.gate.sleep(o.r.ctx, o.place(), d) }

// Checkpoint is where a pause takes effect: it waits while the operation is paused. The error is the cause for which the work is
// to end; return it. A goroutine that has an item of Parallel open uses the item's Checkpoint.
func (o *Op) Checkpoint() error { return o.r.gate.checkpoint(o.r.ctx, o.place()) }

// place is where a goroutine that waits through the Op stands: work with one item at a time waits in the middle of it.
func (o *Op) place() place { return place(!o.r.parallel.Load()) }

// Progress says that done of total units are done; total 0 means unknown. phase is text for people and may be empty.
func (o *Op) Progress(done, total int64, phase string) {
	var known *int64
	if total > 0 {
		known = &total
	}
	o.r.said(done, known, phase)
}

// Result sets a member of the footer. value is encoded as JSON; a name that the footer has already, such as "state", is refused.
func (o *Op) Result(name string, value any) error {
	if name == "" || footerNames[name] {
		return fmt.Errorf("result %q: the footer has a member of this name already", name)
	}
	f, err := newField(name, value)
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	o.r.report.set(f)
	return nil
}

// Artifact makes a file that is kept with the operation and listed in its footer. name is relative and stays inside the folder
// of artifacts. The caller closes the file.
func (o *Op) Artifact(name string) (*os.File, error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("artifact %q: the name leads out of the folder of artifacts", name)
	}
	dir := o.r.owner.ArtifactsPath(o.r.id)
	if err := os.MkdirAll(dir, 0o750); err != nil {
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
	return f, nil
}

// Item is one unit of work of a run.
type Item struct {
	r      *run
	number int
	name   string
	head   string // the first line, when it is printed with the last
	ended  bool
}

// OK ends the item well: it prints "  OK." and adds the item to the footer's processed_files. attrs are further members of its
// entry there, such as slog.Int64("size_bytes", n).
func (i *Item) OK(attrs ...slog.Attr) { i.end("  OK.", nil, attrs) }

// Fail ends the item badly: it prints "  FAIL: " and the error, or line when that is given, and adds the item to the footer's
// failed_files with the error.
func (i *Item) Fail(err error, line ...string) {
	if err == nil {
		err = errors.New("failed")
	}
	said := err.Error()
	if len(line) > 0 {
		said = line[0]
	}
	i.end("  FAIL: "+printable(said), err, nil)
}

// abandon gives the item up because the work is to end: what it wrote so far goes to the log, and it counts as not done.
func (i *Item) abandon() {
	i.r.current.Lock()
	again := i.ended
	i.ended = true
	i.r.current.Unlock()
	if again {
		return
	}
	if i.head != "" {
		i.r.line(strings.TrimSuffix(i.head, "\n"))
	}
	i.r.gate.end()
}

// Sleep is Op.Sleep for the goroutine that does this item.
func (i *Item) Sleep(d time.Duration) error { return i.r.gate.sleep(i.r.ctx, insideItem, d) }

// Checkpoint is Op.Checkpoint for the goroutine that does this item.
func (i *Item) Checkpoint() error { return i.r.gate.checkpoint(i.r.ctx, insideItem) }

// end is called once for each item; a second end of the same item is the handler's mistake and changes nothing.
func (i *Item) end(line string, failure error, attrs []slog.Attr) {
	i.r.current.Lock()
	again := i.ended
	i.ended = true
	i.r.current.Unlock()
	if again {
		return
	}
	i.write(line, failure, attrs)
	i.r.report.mu.Lock()
	done, total := int64(i.r.report.processed+i.r.report.failed), i.r.report.total
	i.r.report.mu.Unlock()
	i.r.said(done, total, "")
	i.r.gate.end()
}

// write has the log and the footer have the items in one order. What the handler gave may panic when it is asked for its text.
func (i *Item) write(line string, failure error, attrs []slog.Attr) {
	i.r.ending.Lock()
	defer i.r.ending.Unlock()
	i.r.line(i.head + line)
	i.r.keepItem(i.r.report.item(i.number, i.name, failure, attrs))
}

func handlerWork(ctx context.Context, r *run) error {
	r.begun() // what it opens is its own affair
	err := r.handler.Run(ctx, &Op{r})
	if err != nil {
		return handlerError(err)
	}
	return nil
}
