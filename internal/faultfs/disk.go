package faultfs

import (
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Disk is a file system in memory that keeps a journal. It is safe for concurrent use.
type Disk struct {
	image *Image // what it began with

	mu      sync.Mutex // guards all below
	live    tree
	names   map[uint64]uint32 // how many each file or folder of live has
	next    uint64
	journal []Op
	cut     bool
	cutAt   int           // the number of operations after which the power is cut, 0 for none
	dark    chan struct{} // closed by that cut
	frozen  bool          // read-only
	fault   *Fault
	listing map[uint64][]listed // of open folders, by their handle
	handles uint64
}

// Fault makes one operation fail.
type Fault struct {
	// Kind is of the operations that are counted.
	Kind Kind
	// At is the number of the operation that fails, counting from 1.
	At int
	// Err is what the program gets.
	Err syscall.Errno
	// Stays makes all later operations of the kind fail as well, as on a disk that stays full; otherwise one fails.
	Stays bool

	seen  int
	fired bool
}

// NewDisk makes a disk that holds an image, all of it durable. Files of the image that have no name are gone.
func NewDisk(image *Image) *Disk {
	d := &Disk{
		live: image.nodes.clone(), names: make(map[uint64]uint32), next: root + 1,
		listing: make(map[uint64][]listed),
	}
	for ino, n := range d.live {
		d.next = max(d.next, ino+1)
		for _, below := range n.entries {
			d.names[below]++
		}
	}
	maps.DeleteFunc(d.live, func(ino uint64, _ *node) bool { return ino != root && d.names[ino] == 0 })
	d.image = &Image{image.Model, d.live.clone()}
	return d
}

// Journal returns what was done up to now.
func (d *Disk) Journal() []Op {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.journal)
}

// Len returns the number of operations up to now.
func (d *Disk) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.journal)
}

// Replay goes through what was done from the beginning.
func (d *Disk) Replay() *Replay { return NewReplay(d.image, d.Journal()) }

// Cut cuts the power: nothing reaches the disk from now on, and every operation fails. It returns the number of
// operations that were done.
func (d *Disk) Cut() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = true
	return len(d.journal)
}

// CutAfter cuts the power as Cut does, as soon as that number of operations was done since the disk was made, and
// closes the channel.
func (d *Disk) CutAfter(operations int) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cutAt, d.dark = operations, make(chan struct{})
	d.cutWhenDue()
	return d.dark
}

func (d *Disk) cutWhenDue() {
	if d.cutAt > 0 && len(d.journal) >= d.cutAt {
		d.cut, d.cutAt = true, 0
		close(d.dark)
	}
}

// ReadOnly makes the disk read-only, as ext4 does by itself after an error, or ends that. A remount would wait for
// open files.
func (d *Disk) ReadOnly(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frozen = on
}

// Arm makes an operation fail, instead of what was armed before; nil disarms.
func (d *Disk) Arm(f *Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

// Fired reports whether the fault that is armed has struck.
func (d *Disk) Fired() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fault != nil && d.fault.fired
}

// do carries out an operation and writes it down, or fails it. The caller holds the lock and has checked the names.
func (d *Disk) do(op Op) syscall.Errno {
	if errno := d.check(op.Kind); errno != 0 {
		return errno
	}
	op.At = time.Now()
	d.carryOut(op)
	return 0
}

// carryOut is do for an operation whose time is given.
func (d *Disk) carryOut(op Op) {
	op.Data = slices.Clone(op.Data)
	d.count(op)
	d.live.apply(op)
	d.journal = append(d.journal, op)
	d.cutWhenDue()
}

// count keeps the number of names of each file before an operation is applied.
func (d *Disk) count(op Op) {
	switch op.Kind {
	case Create, Link:
		d.names[op.Node]++
	case Unlink:
		d.names[op.Node]--
	case Rename:
		if over := d.live[op.ToDir].entries[op.ToName]; over != 0 {
			d.names[over]--
		}
	case Write, Truncate, Attr, Sync, SyncDir:
	}
}

// check says by which error an operation of a kind fails, if it does.
func (d *Disk) check(kind Kind) syscall.Errno {
	if d.cut {
		return syscall.EIO
	}
	if d.frozen && kind != Sync && kind != SyncDir {
		return syscall.EROFS
	}
	if d.fault == nil || d.fault.Kind != kind {
		return 0
	}
	d.fault.seen++
	if d.fault.seen == d.fault.At || d.fault.Stays && d.fault.seen > d.fault.At {
		d.fault.fired = true
		return d.fault.Err
	}
	return 0
}
