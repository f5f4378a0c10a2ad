package blockrec

import (
	"fmt"
	"slices"
	"sync"
)

// Kind says what was done to a disk.
type Kind string

// The kinds.
const (
	Write Kind = "write"
	Zero  Kind = "zero" // also a discard
	Flush Kind = "flush"
)

// Op is one thing that was done to a disk.
type Op struct {
	Kind   Kind
	Offset int64
	Length int64
	data   []byte // of a write; never modified
}

func (o Op) String() string {
	if o.Kind == Flush {
		return "flush"
	}
	return fmt.Sprintf("%s %d at block %d", o.Kind, o.Length, o.Offset/Block)
}

// apply does to an image what was done.
func (o Op) apply(m *Image) {
	switch o.Kind {
	case Write:
		m.write(o.Offset, o.data)
	case Zero:
		m.zero(o.Offset, o.Length)
	case Flush:
	}
}

// Disk is a disk in memory that writes down what is done to it. It is safe for concurrent use.
type Disk struct {
	began *Image

	mu   sync.Mutex // guards all below
	live *Image
	ops  []Op
}

// NewDisk makes a disk that holds an image.
func NewDisk(image *Image) *Disk { return &Disk{began: image, live: image.clone()} }

// Len returns the number of operations so far. An acknowledgement after this call can rely on all of them and
// on no others.
func (d *Disk) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.ops)
}

// Ops returns what was done up to now.
func (d *Disk) Ops() []Op {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.ops)
}

// Image returns what the disk holds, flushed or not.
func (d *Disk) Image() *Image {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.live.clone()
}

// Replay goes through what was done up to now, from the beginning.
func (d *Disk) Replay() *Replay { return &Replay{durable: d.began.clone(), ops: d.Ops()} }

func (d *Disk) read(into []byte, offset int64) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.live.read(into, offset)
}

func (d *Disk) do(op Op) {
	op.data = slices.Clone(op.data)
	d.mu.Lock()
	defer d.mu.Unlock()
	op.apply(d.live)
	d.ops = append(d.ops, op)
}
