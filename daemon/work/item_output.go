package work

import (
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/jobdir/jobdir/statefs/files"
)

// itemOutput is the file that the command of an item writes to. That is the log itself, or, if
// several items run at once, ID.run/item-N.log. There the output can be watched, and it is copied
// to the log in one piece when the item ends.
type itemOutput struct {
	*os.File

	outputs  *itemOutputs // nil if the file is the log
	release  func()
	detached bool
}

// itemOutputs holds the outputs of all items that run at once. They count against the size limit of
// the log.
type itemOutputs struct {
	mu   sync.Mutex
	open map[*os.File]struct{}
}

func itemLog(slot int) string        { return fmt.Sprintf("item-%d.log", slot) }
func itemResultFile(slot int) string { return fmt.Sprintf("result-%d.json", slot) }

// clear removes the files that an earlier command in the slot left: a daemon may have been killed
// before it removed them, or before the command began.
func (w *items) clear(slot int) error {
	for _, name := range []string{itemLog(slot), itemResultFile(slot)} {
		if err := w.r.scratch.drop(name); err != nil {
			return fmt.Errorf("begin item %d: %w", slot, err)
		}
	}
	return nil
}

// output opens the output of an item. resumed means that an earlier daemon began its command.
func (w *items) output(together bool, number int, resumed bool) (*itemOutput, error) {
	r := w.r
	if r.adopted && !resumed {
		if err := w.clear(number); err != nil {
			return nil, err
		}
	}
	if !together {
		log, err := r.openLog()
		return &itemOutput{File: log}, err
	}
	path := r.scratch.path(itemLog(number))
	flags := os.O_RDWR | os.O_APPEND | os.O_CREATE
	if !resumed {
		flags |= os.O_EXCL // no file of an earlier command is left: clear removed it
	}
	var f *os.File
	err := r.retryWhileExhausted(r.ctx, func() (err error) {
		f, err = files.OpenFile(path, flags)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("output of item %d: %w", number, err)
	}
	out := &itemOutput{File: f, outputs: w.outputs, release: func() {}}
	if cancel, err := r.host.Files.Subscribe(path, w.wake); err == nil {
		out.release = cancel // without a watch the size is checked at the next log write
	}
	w.outputs.add(f)
	return out, nil
}

// close closes the output of an item after its text has been copied to the log, and removes the
// file.
func (o *itemOutput) close() {
	if o.outputs != nil && !o.detached {
		_ = os.Remove(o.Name()) // if this fails, the file goes with the scratch folder
	}
	o.detach()
}

// detach closes the output and keeps the file: the command goes on, and the next daemon copies its
// output to the log.
func (o *itemOutput) detach() {
	if o.detached {
		return
	}
	o.detached = true
	if o.outputs != nil {
		o.release()
		o.outputs.remove(o.File)
	}
	_ = o.Close() // the command has its own descriptor; ours wrote nothing
}

func (s *itemOutputs) add(f *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[f] = struct{}{}
}

func (s *itemOutputs) remove(f *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, f)
}

// size returns how many bytes the running items have written.
func (s *itemOutputs) size() (total int64) {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.open {
		if info, err := f.Stat(); err == nil {
			total += info.Size()
		}
	}
	return total
}

// itemOutputLimit limits how much of an item's output goes to the log when several items run at
// once, in bytes.
const itemOutputLimit = 1 << 20

// text returns the output of a command, ending with a newline. Of a longer output it returns the
// last itemOutputLimit bytes, after a line that counts the bytes left out.
func (o *itemOutput) text() string {
	info, err := o.Stat()
	if err != nil || info.Size() == 0 {
		return ""
	}
	from := max(0, info.Size()-itemOutputLimit)
	data, err := io.ReadAll(io.NewSectionReader(o, from, itemOutputLimit))
	if err != nil {
		return ""
	}
	text := string(data)
	if from > 0 {
		text = fmt.Sprintf("  (%d bytes of output left out)\n", from) + text
	}
	if text[len(text)-1] != '\n' {
		text += "\n"
	}
	return text
}
