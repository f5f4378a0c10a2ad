package work

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jobdir/jobdir/catalog"
	"github.com/jobdir/jobdir/statefs"
	"github.com/jobdir/jobdir/stream"
)

// maxListed is how many processed and how many failed items the footer lists; the item file lists
// all.
const maxListed = 1000

// nameLimit limits the name of an item in an error message, in bytes.
const nameLimit = 200

// Report collects what the work reports: item results, progress and values for the footer. It is
// safe for concurrent use.
type Report struct {
	mu          sync.Mutex
	items       io.WriteCloser // ID.items.ndjson; nil until the first item
	openItems   func() (io.WriteCloser, error)
	output      *statefs.Output // restores the item file; nil if the report writes none
	partialLine bool            // the last write ended within a line
	run         int
	step        string // "" for a job without steps

	processed, failed         int
	processedList, failedList [][]byte
	total                     *int64
	progress                  statefs.Progress
	result                    []field
	itemErr                   error // the first failure to write an item result
	lastName                  string
	lastFailed                error // the error of the item lastName, which failed last; nil if none has
}

// field is one member of a JSON object whose member order is kept.
type field struct {
	name  string
	value json.RawMessage
}

// object encodes fields as one JSON object, in order.
func object(fields []field) json.RawMessage {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, f := range fields {
		if i > 0 {
			out.WriteByte(',')
		}
		name, _ := json.Marshal(f.name) // text always encodes
		out.Write(name)
		out.WriteByte(':')
		out.Write(f.value)
	}
	out.WriteByte('}')
	return out.Bytes()
}

func newField(name string, value any) (field, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return field{}, fmt.Errorf("%s: %w", name, err)
	}
	return field{name, data}, nil
}

// member is newField for a value that always encodes.
func member(name string, value any) field {
	f, _ := newField(name, value)
	return f
}

// addItem notes the end of one item and returns its line for the item file. failure is nil if the
// item succeeded.
func (r *Report) addItem(number int, name string, failure error, attrs []slog.Attr) []byte {
	entry := []field{member("filename", name)}
	if !utf8.ValidString(name) { // JSON text cannot hold the name
		entry = append(entry, member("filename_base64", []byte(name)))
	}
	if failure != nil {
		entry = append(entry, member("error", failure.Error()))
	}
	for _, attr := range attrs {
		f, err := newField(attr.Key, attr.Value.Any())
		if err != nil {
			f = member(attr.Key, attr.Value.String())
		}
		entry = append(entry, f)
	}
	r.count(failure == nil, object(entry))
	if failure != nil {
		r.mu.Lock()
		r.lastName, r.lastFailed = name, failure
		r.mu.Unlock()
	}
	head := []field{member("item", number), member("run", r.run), member("ok", failure == nil)}
	if r.step != "" {
		head = append(head, member("step", r.step))
	}
	return append(object(append(head, entry...)), '\n')
}

// writeItem appends a line to the item file, which lists all items and is the checkpoint from which
// a restart resumes. After an error it may be called again with the same line. It is not safe for
// concurrent use.
func (r *Report) writeItem(line []byte) error {
	if r.items == nil {
		file, err := r.openItems()
		if err != nil {
			return err
		}
		r.items = file
	}
	if r.partialLine {
		line = append([]byte{'\n'}, line...) // readers skip the partial line
	}
	n, err := r.items.Write(line)
	r.partialLine = err != nil && (n > 0 || r.partialLine)
	return err
}

// noteWriteError notes the first error that left the item file incomplete.
func (r *Report) noteWriteError(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.itemErr == nil {
		r.itemErr = err
	}
}

// itemsComplete reports whether the item file has a line for each item that has ended.
func (r *Report) itemsComplete() bool { return r.writeError() == nil }

// count counts an item that has ended, and lists its entry.
func (r *Report) count(ok bool, entry []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	number, list := &r.processed, &r.processedList
	if !ok {
		number, list = &r.failed, &r.failedList
	}
	if *number++; len(*list) < maxListed {
		*list = append(*list, entry)
	}
}

// setProgress notes the progress of the work and returns all that is known of it.
func (r *Report) setProgress(done int64, total *int64, phase string, at time.Time) statefs.Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress.Done, r.progress.At = done, at
	if total != nil {
		r.progress.Total = total
	}
	if phase != "" {
		r.progress.Phase = phase
	}
	return r.progress
}

func (r *Report) touch(at time.Time) statefs.Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress.At = at
	return r.progress
}

// current returns the current progress; its time is zero before the first heartbeat.
func (r *Report) current() statefs.Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.progress
}

// SetTotal sets the number of items; nil means unknown.
func (r *Report) SetTotal(total *int64) {
	r.mu.Lock()
	r.total = total
	r.mu.Unlock()
}

// setField sets a member of the footer; the last value for a name counts.
func (r *Report) setField(f field) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.result {
		if r.result[i].name == f.name {
			r.result[i].value = f.value
			return
		}
	}
	r.result = append(r.result, f)
}

// done returns how many items have ended, and the total.
func (r *Report) done() (done int64, total *int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(r.processed + r.failed), r.total
}

// Counts returns how many items succeeded and how many failed.
func (r *Report) Counts() (processed, failed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.processed, r.failed
}

// failedItems returns an error if so many items failed that the operation has failed.
func (r *Report) failedItems(when catalog.FailWhen) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.processed + r.failed
	switch when {
	case catalog.FailAny:
		if r.failed > 0 {
			return r.itemsError(fmt.Sprintf("%d of %d", r.failed, all))
		}
	case catalog.FailAll:
		if all > 0 && r.processed == 0 {
			return r.itemsError(fmt.Sprintf("all %d", all))
		}
	case catalog.FailNever:
	}
	return nil
}

// itemsError returns the error of a run with failed items. It includes the error of the item that
// failed last in this run.
func (r *Report) itemsError(count string) error {
	if r.lastFailed == nil {
		return &Error{"items_failed", fmt.Errorf("%s items failed", count)}
	}
	return &Error{"items_failed", fmt.Errorf("%s items failed; the last one, '%s': %w",
		count, stream.Printable(truncate(r.lastName, nameLimit)), r.lastFailed)}
}

// Member returns a member of the work's result by name.
func (r *Report) Member(name string) (json.RawMessage, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.result {
		if f.name == name {
			return f.value, true
		}
	}
	return nil, false
}

// Members returns those of the named members of the result that exist.
func (r *Report) Members(names []string) map[string]json.RawMessage {
	var out map[string]json.RawMessage
	for _, name := range names {
		if value, ok := r.Member(name); ok {
			if out == nil {
				out = make(map[string]json.RawMessage)
			}
			out[name] = value
		}
	}
	return out
}

// writeError returns the first error of writing the item file.
func (r *Report) writeError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.itemErr
}

// close closes the item file and returns the first error of writing it.
func (r *Report) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.items != nil {
		var err error
		if file, ok := r.items.(*os.File); ok && r.output != nil {
			err = r.output.RestoreItems(file)
		}
		if err = errors.Join(err, r.items.Close()); err != nil && r.itemErr == nil {
			r.itemErr = err
		}
		r.items = nil
	}
	return r.itemErr
}

// truncate returns text cut to at most limit bytes. A cut ends after a whole character and is
// marked with an ellipsis.
func truncate(text string, limit int) string {
	const ellipsis = "…"
	if len(text) <= limit {
		return text
	}
	end := limit - len(ellipsis)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}
