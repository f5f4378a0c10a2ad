package faultfs

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Kind is what an operation of the journal does.
type Kind string

// The kinds.
const (
	// Create makes a file, folder, link or socket under a new name.
	Create Kind = "create"
	// Link gives a file another name.
	Link Kind = "link"
	// Unlink takes a name away, also that of a folder.
	Unlink Kind = "unlink"
	// Rename moves a name, replacing what has the new one.
	Rename Kind = "rename"
	// Write writes bytes.
	Write Kind = "write"
	// Truncate sets the size.
	Truncate Kind = "truncate"
	// Attr sets permissions and times.
	Attr Kind = "attr"
	// Sync makes the content of a file durable.
	Sync Kind = "fsync"
	// SyncDir makes the names in a folder durable.
	SyncDir Kind = "fsyncdir"
)

// root is the number of the topmost folder, which FUSE prescribes.
const root = 1

// Op is one change, or one sync.
type Op struct {
	Kind Kind
	// Node is the number of the file or folder: made, moved, unlinked, written or synced.
	Node uint64
	// Dir and Name are where the name is, before a rename.
	Dir  uint64
	Name string
	// ToDir and ToName are where a rename leads.
	ToDir  uint64
	ToName string
	// Mode is of Create and Attr: the type and permission bits of stat(2).
	Mode uint32
	// Data is what is written, or where a symbolic link leads.
	Data []byte
	// Offset is where it is written, or the new size.
	Offset int64
	// At is the time that the file gets.
	At time.Time
}

func (o Op) String() string {
	switch o.Kind {
	case Create, Unlink, Link:
		return fmt.Sprintf("%s %d/%s = %d", o.Kind, o.Dir, o.Name, o.Node)
	case Rename:
		return fmt.Sprintf("rename %d/%s -> %d/%s", o.Dir, o.Name, o.ToDir, o.ToName)
	case Write:
		return fmt.Sprintf("write %d at %d: %d bytes", o.Node, o.Offset, len(o.Data))
	case Truncate, Attr, Sync, SyncDir:
	}
	return fmt.Sprintf("%s %d", o.Kind, o.Node)
}

// node is a file or folder.
type node struct {
	mode    uint32
	data    []byte // of a file, or where a symbolic link leads; clones share it, so what it holds never changes
	entries map[string]uint64
	mtime   time.Time
}

const (
	typeMask   = 0o170000
	typeFolder = 0o040000
	typeFile   = 0o100000
	typeLink   = 0o120000
)

func (n *node) folder() bool { return n.mode&typeMask == typeFolder }

func (n *node) clone() *node {
	c := *n
	c.data, c.entries = slices.Clip(n.data), maps.Clone(n.entries) // only n goes on behind its end
	return &c
}

// tree is a file system: what applying operations gives.
type tree map[uint64]*node

func newTree() tree {
	return tree{root: {mode: typeFolder | 0o755, entries: make(map[string]uint64), mtime: time.Now()}}
}

func (t tree) clone() tree {
	c := make(tree, len(t))
	for ino, n := range t {
		c[ino] = n.clone()
	}
	return c
}

// apply applies an operation. An operation that is impossible (its folder was never created) has no effect:
// the journal is incomplete because other operations were lost.
func (t tree) apply(o Op) {
	t.applyNames(o)
	t.applyContent(o)
}

// applyNames carries out what an operation does to folders.
func (t tree) applyNames(o Op) {
	dir := t[o.Dir]
	switch o.Kind {
	case Create:
		if t[o.Node] == nil {
			t[o.Node] = o.newNode()
		}
		set(dir, o.Name, o.Node, o.At)
	case Link:
		set(dir, o.Name, o.Node, o.At)
	case Unlink:
		unset(dir, o.Name, o.Node, o.At)
	case Rename:
		unset(dir, o.Name, o.Node, o.At)
		set(t[o.ToDir], o.ToName, o.Node, o.At)
	case Write, Truncate, Attr, Sync, SyncDir:
	}
}

// applyContent carries out what an operation does to a file.
func (t tree) applyContent(o Op) {
	n := t[o.Node]
	if n == nil {
		return
	}
	switch o.Kind {
	case Write:
		if o.Offset < int64(len(n.data)) {
			n.data = slices.Clone(n.data)
		}
		n.resize(max(int64(len(n.data)), o.Offset+int64(len(o.Data))))
		copy(n.data[o.Offset:], o.Data)
		n.mtime = o.At
	case Truncate:
		n.resize(o.Offset)
		n.mtime = o.At
	case Attr:
		n.mode, n.mtime = o.Mode, o.At
	case Create, Link, Unlink, Rename, Sync, SyncDir:
	}
}

func (n *node) resize(size int64) {
	if size <= int64(len(n.data)) {
		n.data = slices.Clip(n.data[:size])
		return
	}
	n.data = append(n.data, make([]byte, size-int64(len(n.data)))...)
}

func (o Op) newNode() *node {
	n := &node{mode: o.Mode, mtime: o.At, data: slices.Clone(o.Data)}
	if n.folder() {
		n.entries = make(map[string]uint64)
	}
	return n
}

func set(dir *node, name string, ino uint64, at time.Time) {
	if dir != nil && dir.entries != nil {
		dir.entries[name], dir.mtime = ino, at
	}
}

func unset(dir *node, name string, ino uint64, at time.Time) {
	if dir != nil && dir.entries != nil && dir.entries[name] == ino {
		delete(dir.entries, name)
		dir.mtime = at
	}
}
