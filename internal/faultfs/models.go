package faultfs

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
)

// Model is an assumption on what survives a power cut.
type Model string

// The models, see the package comment.
const (
	Strict  Model = "strict"
	Ordered Model = "ordered"
	Subset  Model = "subset"
	// Everything is no power cut: the process died and the kernel lives.
	Everything Model = "everything"
)

// maxEnumerated is the number of unsynced changes up to which every subset of them is an image. Of more, subsets are
// drawn.
const maxEnumerated = 5

// drawn is how many subsets are drawn.
const drawn = 16

// Replay goes through a journal and knows at each point what would survive a cut there.
type Replay struct {
	start   tree
	ops     []Op
	at      int
	live    tree
	content map[uint64][]byte            // of each file, as of its last sync
	names   map[uint64]map[string]uint64 // of each folder, as of its last sync
	pending []change                     // not synced, in order
	order   []Op                         // changes of names since the last sync of anything
	before  tree                         // the live tree as of that sync, nil while it is the same
}

// change is an operation that was not synced, or of a rename the half that was not.
type change struct {
	Op
	from, to bool // these halves of a rename are to be done
}

func (c change) apply(t tree) {
	if c.Kind != Rename {
		t.apply(c.Op)
		return
	}
	if c.from {
		unset(t[c.Dir], c.Name, c.Node, c.At)
	}
	if c.to {
		set(t[c.ToDir], c.ToName, c.Node, c.At)
	}
}

// settle notes that the names of a folder are durable, and reports whether all of the change is.
func (c *change) settle(dir uint64) bool {
	if c.Kind == Rename {
		// Where it was is synced only together with where it went, or the file would be nowhere.
		c.from, c.to = c.from && c.Dir != dir, c.to && c.ToDir != dir && c.Dir != dir
		return !c.from && !c.to
	}
	return c.Dir == dir && (c.Kind == Create || c.Kind == Link || c.Kind == Unlink)
}

// NewReplay begins at an image, which counts as durable, before the first operation.
func NewReplay(from *Image, ops []Op) *Replay {
	r := &Replay{start: from.nodes, ops: ops, live: from.nodes.clone()}
	r.content, r.names = make(map[uint64][]byte), make(map[uint64]map[string]uint64)
	for ino, n := range from.nodes {
		r.content[ino], r.names[ino] = slices.Clip(n.data), maps.Clone(n.entries)
	}
	return r
}

// At returns the number of operations that were applied.
func (r *Replay) At() int { return r.at }

// Next applies one operation, and is false when there is none.
func (r *Replay) Next() bool {
	if r.at == len(r.ops) {
		return false
	}
	op := r.ops[r.at]
	r.at++
	if r.before == nil && op.Kind != Sync && op.Kind != SyncDir {
		r.before = r.live.clone()
	}
	r.live.apply(op)
	switch op.Kind {
	case Sync:
		if n := r.live[op.Node]; n != nil {
			r.content[op.Node] = slices.Clip(n.data)
		}
		r.settle(func(c *change) bool { return c.Node == op.Node && (c.Kind == Write || c.Kind == Truncate) })
	case SyncDir:
		if n := r.live[op.Node]; n != nil {
			r.names[op.Node] = maps.Clone(n.entries)
		}
		r.carryAlong(op.Node)
		r.settle(func(c *change) bool { return c.settle(op.Node) })
	case Create, Link, Unlink, Rename:
		r.order = append(r.order, op)
		r.pending = append(r.pending, change{op, true, true})
	case Write, Truncate:
		r.pending = append(r.pending, change{op, false, false})
	case Attr:
	}
	return true
}

// carryAlong makes durable where files went that were renamed out of a folder which is synced.
func (r *Replay) carryAlong(dir uint64) {
	for _, c := range r.pending {
		if c.Kind == Rename && c.Dir == dir && c.ToDir != dir && c.to {
			if r.names[c.ToDir] == nil {
				r.names[c.ToDir] = make(map[string]uint64)
			}
			r.names[c.ToDir][c.ToName] = c.Node
		}
	}
}

// settle forgets the pending changes that a sync made durable. It made all changes of names durable in the ordered
// model.
func (r *Replay) settle(durable func(*change) bool) {
	left := r.pending[:0]
	for _, c := range r.pending {
		if !durable(&c) {
			left = append(left, c)
		}
	}
	clear(r.pending[len(left):])
	r.pending = left
	r.order, r.before = nil, nil
}

// Images yields what a disk may hold after a cut at this point. Images of one model may be equal.
func (r *Replay) Images(models ...Model) iter.Seq[*Image] {
	return func(yield func(*Image) bool) {
		for _, model := range models {
			for image := range r.images(model) {
				if !yield(image) {
					return
				}
			}
		}
	}
}

func (r *Replay) images(model Model) iter.Seq[*Image] {
	return func(yield func(*Image) bool) {
		switch model {
		case Everything:
			yield(&Image{fmt.Sprintf("everything up to %d", r.at), r.live.clone()})
		case Strict:
			yield(&Image{fmt.Sprintf("strict at %d", r.at), r.strict()})
		case Ordered:
			for n := range len(r.order) + 1 {
				if !yield(&Image{fmt.Sprintf("ordered at %d, %d of %d names", r.at, n, len(r.order)), r.ordered(n)}) {
					return
				}
			}
		case Subset:
			for mask := range r.masks() {
				if !yield(&Image{fmt.Sprintf("subset %#x at %d", mask, r.at), r.subset(mask)}) {
					return
				}
			}
		}
	}
}

// strict builds what was synced.
func (r *Replay) strict() tree {
	t := r.live.clone()
	for ino, n := range t {
		if n.folder() {
			n.entries = maps.Clone(r.names[ino])
			if n.entries == nil {
				n.entries = make(map[string]uint64)
			}
		} else if n.mode&typeMask == typeFile {
			n.data = r.content[ino]
		}
	}
	return t
}

// ordered builds the first n changes of names since the last sync, and the content that was synced.
func (r *Replay) ordered(n int) tree {
	t := r.live
	if r.before != nil {
		t = r.before
	}
	t = t.clone()
	for _, op := range r.order[:n] {
		t.applyNames(op)
	}
	for ino, n := range t {
		if n.mode&typeMask == typeFile {
			n.data = r.content[ino]
		}
	}
	return t
}

// subset builds what was synced and the pending changes whose bit is set.
func (r *Replay) subset(mask uint64) tree {
	t := r.strict()
	for i, c := range r.pending {
		if mask>>(i%64)&1 == 1 {
			c.apply(t)
		}
	}
	return t
}

// masks yields every subset of few pending changes, and draws of many. The same journal always gives the same ones.
func (r *Replay) masks() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		n := len(r.pending)
		if n <= maxEnumerated {
			for mask := range uint64(1) << n {
				if !yield(mask) {
					return
				}
			}
			return
		}
		draw := rand.New(rand.NewPCG(uint64(r.at), uint64(n)))
		for range drawn {
			if !yield(draw.Uint64()) {
				return
			}
		}
	}
}

// Draw returns one image after a cut at this point: strict, ordered or a subset, as the number says.
func (r *Replay) Draw(number uint64) *Image {
	switch number % 3 {
	case 0:
		return &Image{fmt.Sprintf("strict at %d", r.at), r.strict()}
	case 1:
		n := int(number / 3 % uint64(len(r.order)+1))
		return &Image{fmt.Sprintf("ordered at %d, %d of %d names", r.at, n, len(r.order)), r.ordered(n)}
	}
	return &Image{fmt.Sprintf("subset %#x at %d", number, r.at), r.subset(number)}
}
