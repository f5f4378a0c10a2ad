package daemon

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
)

// itemOutput is where the command of one item writes: the log itself, or, when several run at once, ID.run/item-N.log, where it can
// be watched, and from where it goes to the log in one piece when the item ends.
type itemOutput struct {
	*os.File

	all     *itemOutputs // nil for the log
	release func()
	left    bool
}

// itemOutputs are the outputs of all items that run at once; they count against the limit of the log like the log itself.
type itemOutputs struct {
	wake chan<- struct{} // of the monitor, which looks at the sizes
	mu   sync.Mutex
	open map[*os.File]struct{}
	some atomic.Bool // there has been one
}

func itemLog(slot int) string        { return fmt.Sprintf("item-%d.log", slot) }
func itemResultFile(slot int) string { return fmt.Sprintf("result-%d.json", slot) }

// clearItem removes what an earlier command in the slot of an item has left: a daemon may have been killed before it took that away, or before
// the command began.
func (r *run) clearItem(slot int) error {
	for _, name := range []string{itemLog(slot), itemResultFile(slot)} {
		if err := r.scratch.drop(name); err != nil {
			return fmt.Errorf("begin item %d: %w", slot, err)
		}
	}
	return nil
}

func (r *run) itemOutput(together bool, number int) (*itemOutput, error) {
	if !together {
		log, err := r.openLog()
		return &itemOutput{File: log}, err
	}
	path := r.scratch.path(itemLog(number))
	flags := os.O_RDWR | os.O_APPEND | os.O_CREATE
	if !r.commands.has(number) {
		flags |= os.O_EXCL // what a daemon left that was killed before it had the command begin is gone
	}
	var f *os.File
	err := r.patiently(r.ctx, func() (err error) {
		f, err = os.OpenFile(path, flags, 0o640)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("output of item %d: %w", number, err)
	}
	out := &itemOutput{File: f, all: &r.outputs, release: func() {}}
	if cancel, err := r.files.Subscribe(path, r.outputs.wake); err == nil {
		out.release = cancel // without a watch the limit is found when the log is next written
	}
	r.outputs.add(f)
	return out, nil
}

// close ends the output of an item: its text has gone to the log.
func (o *itemOutput) close() {
	if o.all != nil && !o.left {
		_ = os.Remove(o.Name()) // the folder goes with the operation
	}
	o.leave()
}

// leave lets the output be: its command goes on, and the next daemon takes it to the log.
func (o *itemOutput) leave() {
	if o.left {
		return
	}
	o.left = true
	if o.all != nil {
		o.release()
		o.all.remove(o.File)
	}
	_ = o.Close() // the command has its own descriptor; ours wrote nothing
}

func (s *itemOutputs) add(f *os.File) {
	s.some.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*os.File]struct{})
	}
	s.open[f] = struct{}{}
}

func (s *itemOutputs) remove(f *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, f)
}

// size returns how much the items that run have written.
func (s *itemOutputs) size() (total int64) {
	if !s.some.Load() {
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

// itemOutputLimit bounds what is kept of the output of one of several commands that run at once.
const itemOutputLimit = 1 << 20

// text returns what a command wrote, its end when that is too much, with a newline at the end.
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
