package faultfs

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Image is what a disk holds.
type Image struct {
	// Model says how the image came to be, for messages.
	Model string
	nodes tree
}

// Empty is the image of a new disk.
func Empty() *Image { return &Image{"empty", newTree()} }

// Hash is the same for images with the same names, content and permissions. Times do not count.
func (i *Image) Hash() [sha256.Size]byte {
	var all []byte
	numbers := make(map[uint64]uint64) // the same file under two names counts, its number does not
	i.walk(func(path string, ino uint64, n *node) {
		if numbers[ino] == 0 {
			numbers[ino] = uint64(len(numbers)) + 1
		}
		all = append(append(all, path...), 0) // which no path has
		all = binary.LittleEndian.AppendUint64(all, numbers[ino])
		all = binary.LittleEndian.AppendUint32(all, n.mode)
		all = binary.LittleEndian.AppendUint64(all, uint64(len(n.data)))
		all = append(all, n.data...)
	})
	return sha256.Sum256(all)
}

// walk calls visit for each name, folders before what is in them, in an order that depends on the names alone.
func (i *Image) walk(visit func(path string, ino uint64, n *node)) {
	var down func(path string, dir *node, depth int)
	down = func(path string, dir *node, depth int) {
		for _, name := range slices.Sorted(maps.Keys(dir.entries)) {
			ino := dir.entries[name]
			n := i.nodes[ino]
			if n == nil {
				continue
			}
			below := filepath.Join(path, name)
			visit(below, ino, n)
			if n.folder() && depth < 64 { // a lost half of a rename may show a folder in itself
				down(below, n, depth+1)
			}
		}
	}
	down("", i.nodes[root], 0)
}

// Names returns every path of the image, relative, in order.
func (i *Image) Names() []string {
	var names []string
	i.walk(func(path string, _ uint64, _ *node) { names = append(names, path) })
	return names
}

// Materialise writes the image into a folder that exists. Sockets are left out: they mean nothing without their
// process.
func (i *Image) Materialise(dir string) error {
	made := make(map[uint64]string)
	folders := make(map[string]*node)
	var errs []error
	i.walk(func(path string, ino uint64, n *node) {
		target := filepath.Join(dir, path)
		var err error
		switch first := made[ino]; {
		case n.folder():
			folders[target] = n
			err = os.Mkdir(target, 0o700)
		case first != "":
			err = os.Link(first, target)
		case n.mode&typeMask == typeLink:
			err = os.Symlink(string(n.data), target)
		case n.mode&typeMask == typeFile:
			made[ino] = target
			err = materialiseFile(target, n)
		}
		if err != nil {
			errs = append(errs, err)
		}
	})
	for path, n := range folders {
		errs = append(errs, os.Chmod(path, fileMode(n.mode)))
	}
	return errors.Join(errs...)
}

func materialiseFile(target string, n *node) error {
	err := os.WriteFile(target, n.data, 0o600) //nolint:forbidigo // a copy of what a test left, not a state file
	if err != nil {
		return err
	}
	if err := os.Chmod(target, fileMode(n.mode)); err != nil {
		return err
	}
	return os.Chtimes(target, time.Time{}, n.mtime)
}

func fileMode(mode uint32) os.FileMode {
	m := os.FileMode(mode & 0o777)
	if mode&syscall.S_ISGID != 0 {
		m |= os.ModeSetgid
	}
	return m
}
