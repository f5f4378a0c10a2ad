package blockrec

import "fmt"

// Replay goes through what was done to a disk and says what it may hold when the power goes.
type Replay struct {
	durable *Image // as of the last flush
	ops     []Op
	at      int
	pending []Op // writes since then, no longer than a block
}

// Len is the number of things that were done.
func (r *Replay) Len() int { return len(r.ops) }

// At is the number of things that are done.
func (r *Replay) At() int { return r.at }

// Pending is the number of blocks that were written since the last flush.
func (r *Replay) Pending() int { return len(r.pending) }

// Op returns one of the things that were done, counting from 0.
func (r *Replay) Op(number int) Op { return r.ops[number] }

// To goes on until a number of things are done. There is no way back.
func (r *Replay) To(at int) {
	if at < r.at || at > len(r.ops) {
		panic(fmt.Sprintf("blockrec: from %d to %d of %d", r.at, at, len(r.ops)))
	}
	for ; r.at < at; r.at++ {
		op := r.ops[r.at]
		if op.Kind != Flush {
			r.pending = append(r.pending, op.split()...)
			continue
		}
		for _, written := range r.pending {
			written.apply(r.durable)
		}
		r.pending = r.pending[:0]
	}
}

// Draw returns the disk after a power cut here: what was flushed, and of what was written since that for which keep
// says so.
func (r *Replay) Draw(keep func() bool) *Image {
	image := r.durable.clone()
	for _, written := range r.pending {
		if keep() {
			written.apply(image)
		}
	}
	return image
}

// split cuts a write where a disk may tear it. What is discarded is discarded at once.
func (o Op) split() (parts []Op) {
	if o.Kind != Write {
		return []Op{o}
	}
	for offset, data := o.Offset, o.data; len(data) > 0; {
		n := min(int64(len(data)), Block-offset%Block)
		parts = append(parts, Op{Kind: Write, Offset: offset, Length: n, data: data[:n]})
		offset, data = offset+n, data[n:]
	}
	return parts
}
