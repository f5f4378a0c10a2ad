package faultfs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// server answers the kernel. Node numbers are those of the journal; nothing is forgotten, so every number stays valid.
type server struct {
	fuse.RawFileSystem
	*Disk
}

// forever is how long the kernel may remember names and attributes: whatever changes them passes through it.
const forever = 24 * time.Hour

func (s *server) String() string { return "faultfs" }

func (s *server) attr(ino uint64, n *node, out *fuse.Attr) {
	*out = fuse.Attr{
		Ino: ino, Size: uint64(len(n.data)), Mode: n.mode, Nlink: 1, Blksize: 4096,
		Blocks: uint64(len(n.data)+511) / 512,
	}
	out.Owner = *fuse.CurrentOwner()
	if n.folder() {
		out.Nlink = 2
	} else if n.mode&typeMask == typeFile {
		out.Nlink = s.names[ino]
	}
	out.SetTimes(&n.mtime, &n.mtime, &n.mtime)
}

func (s *server) entry(ino uint64, out *fuse.EntryOut) fuse.Status {
	out.NodeId, out.Generation = ino, 1
	out.SetEntryTimeout(forever)
	out.SetAttrTimeout(forever)
	s.attr(ino, s.live[ino], &out.Attr)
	return fuse.OK
}

// folder finds a folder and what has a name in it, 0 when nothing has.
func (s *server) folder(ino uint64, name string) (dir *node, found uint64) {
	dir = s.live[ino]
	if dir == nil || !dir.folder() {
		return nil, 0
	}
	return dir, dir.entries[name]
}

func (s *server) Lookup(_ <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		return fuse.EIO
	}
	dir, found := s.folder(header.NodeId, name)
	if dir == nil || found == 0 {
		return fuse.ENOENT
	}
	return s.entry(found, out)
}

func (s *server) GetAttr(_ <-chan struct{}, input *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.live[input.NodeId]
	if n == nil {
		return fuse.ENOENT
	}
	out.SetTimeout(forever)
	s.attr(input.NodeId, n, &out.Attr) // also after a cut, or an unmount by path could not find the mount
	return fuse.OK
}

func (s *server) SetAttr(_ <-chan struct{}, input *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.live[input.NodeId]
	if n == nil {
		return fuse.ENOENT
	}
	if size, ok := input.GetSize(); ok {
		if errno := s.do(Op{Kind: Truncate, Node: input.NodeId, Offset: int64(size)}); errno != 0 {
			return fuse.Status(errno)
		}
	}
	mode, chmod := input.GetMode()
	mtime, touched := input.GetMTime()
	if chmod || touched {
		if errno := s.check(Attr); errno != 0 {
			return fuse.Status(errno)
		}
		op := Op{Kind: Attr, Node: input.NodeId, Mode: n.mode, At: n.mtime}
		if chmod {
			op.Mode = n.mode&typeMask | mode
		}
		if touched {
			op.At = mtime
		}
		s.carryOut(op)
	}
	out.SetTimeout(forever)
	s.attr(input.NodeId, n, &out.Attr)
	return fuse.OK
}

// create makes something under a name that must be free.
func (s *server) create(parent uint64, name string, mode uint32, data []byte, out *fuse.EntryOut) fuse.Status {
	dir, found := s.folder(parent, name)
	switch {
	case s.cut:
		return fuse.EIO
	case dir == nil:
		return fuse.ENOENT
	case found != 0:
		return fuse.Status(unix.EEXIST)
	}
	ino := s.next
	s.next++
	if errno := s.do(Op{Kind: Create, Node: ino, Dir: parent, Name: name, Mode: mode, Data: data}); errno != 0 {
		return fuse.Status(errno)
	}
	return s.entry(ino, out)
}

func (s *server) Mknod(_ <-chan struct{}, input *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.create(input.NodeId, name, input.Mode, nil, out)
}

func (s *server) Mkdir(_ <-chan struct{}, input *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.create(input.NodeId, name, typeFolder|input.Mode&0o7777, nil, out)
}

func (s *server) Symlink(_ <-chan struct{}, header *fuse.InHeader, target, name string,
	out *fuse.EntryOut,
) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.create(header.NodeId, name, typeLink|0o777, []byte(target), out)
}

func (s *server) Readlink(_ <-chan struct{}, header *fuse.InHeader) ([]byte, fuse.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.live[header.NodeId]
	if n == nil || n.mode&typeMask != typeLink {
		return nil, fuse.EINVAL
	}
	return n.data, fuse.OK
}

func (s *server) Unlink(_ <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.folder(header.NodeId, name)
	if found == 0 {
		return fuse.ENOENT
	}
	return fuse.Status(s.do(Op{Kind: Unlink, Node: found, Dir: header.NodeId, Name: name}))
}

func (s *server) Rmdir(_ <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.folder(header.NodeId, name)
	if found == 0 {
		return fuse.ENOENT
	}
	if n := s.live[found]; n.folder() && len(n.entries) > 0 {
		return fuse.Status(unix.ENOTEMPTY)
	}
	return fuse.Status(s.do(Op{Kind: Unlink, Node: found, Dir: header.NodeId, Name: name}))
}

func (s *server) Rename(_ <-chan struct{}, input *fuse.RenameIn, oldName, newName string) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, from := s.folder(input.NodeId, oldName)
	to, over := s.folder(input.Newdir, newName)
	switch {
	case from == 0 || to == nil:
		return fuse.ENOENT
	case input.Flags&unix.RENAME_EXCHANGE != 0:
		return fuse.EINVAL
	case over != 0 && input.Flags&unix.RENAME_NOREPLACE != 0:
		return fuse.Status(unix.EEXIST)
	case over == from:
		return fuse.OK
	}
	return fuse.Status(s.do(Op{
		Kind: Rename, Node: from, Dir: input.NodeId, Name: oldName,
		ToDir: input.Newdir, ToName: newName,
	}))
}

func (s *server) Link(_ <-chan struct{}, input *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, found := s.folder(input.NodeId, name)
	switch {
	case dir == nil || s.live[input.Oldnodeid] == nil:
		return fuse.ENOENT
	case found != 0:
		return fuse.Status(unix.EEXIST)
	}
	if errno := s.do(Op{Kind: Link, Node: input.Oldnodeid, Dir: input.NodeId, Name: name}); errno != 0 {
		return fuse.Status(errno)
	}
	return s.entry(input.Oldnodeid, out)
}

func (s *server) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	*out = fuse.StatfsOut{
		Blocks: 1 << 20, Bfree: 1 << 19, Bavail: 1 << 19, Files: 1 << 20, Ffree: 1 << 19, Bsize: 4096,
		NameLen: 255, Frsize: 4096,
	}
	return fuse.OK
}

func (s *server) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.OK }

func (s *server) Forget(uint64, uint64) {}

var _ fuse.RawFileSystem = (*server)(nil)
