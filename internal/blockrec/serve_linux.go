package blockrec

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// fileName is the one file of the file system, which is the disk.
const fileName = "disk"

const fileNode = fuse.FUSE_ROOT_ID + 1

// server answers the kernel.
type server struct {
	fuse.RawFileSystem
	*Disk
}

func (s *server) String() string { return "blockrec" }

func (s *server) attr(node uint64, out *fuse.Attr) {
	*out = fuse.Attr{Ino: node, Mode: unix.S_IFDIR | 0o700, Nlink: 2, Blksize: Block}
	if node == fileNode {
		size := uint64(s.began.Size())
		*out = fuse.Attr{Ino: node, Mode: unix.S_IFREG | 0o600, Nlink: 1, Blksize: Block, Size: size, Blocks: size / 512}
	}
	out.Owner = *fuse.CurrentOwner()
}

func (s *server) Lookup(_ <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if header.NodeId != fuse.FUSE_ROOT_ID || name != fileName {
		return fuse.ENOENT
	}
	out.NodeId, out.Generation = fileNode, 1
	s.attr(fileNode, &out.Attr)
	return fuse.OK
}

func (s *server) GetAttr(_ <-chan struct{}, input *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	s.attr(input.NodeId, &out.Attr)
	return fuse.OK
}

// Open makes every read and write come here at once and as it is: no second cache, which could keep or reorder
// anything.
func (s *server) Open(_ <-chan struct{}, _ *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES
	return fuse.OK
}

func (s *server) Read(_ <-chan struct{}, input *fuse.ReadIn, buffer []byte) (fuse.ReadResult, fuse.Status) {
	buffer = buffer[:min(len(buffer), int(input.Size))]
	return fuse.ReadResultData(buffer[:s.read(buffer, int64(input.Offset))]), fuse.OK
}

func (s *server) Write(_ <-chan struct{}, input *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	if int64(input.Offset)+int64(len(data)) > s.began.Size() {
		return 0, fuse.Status(unix.ENOSPC)
	}
	s.do(Op{Kind: Write, Offset: int64(input.Offset), Length: int64(len(data)), data: data})
	return uint32(len(data)), fuse.OK
}

// Fallocate is how a loop device hands on a discard, and a write of zeros.
func (s *server) Fallocate(_ <-chan struct{}, input *fuse.FallocateIn) fuse.Status {
	if input.Mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) == 0 {
		return fuse.Status(unix.EOPNOTSUPP)
	}
	if int64(input.Offset)+int64(input.Length) > s.began.Size() {
		return fuse.Status(unix.ENOSPC)
	}
	s.do(Op{Kind: Zero, Offset: int64(input.Offset), Length: int64(input.Length)})
	return fuse.OK
}

// Fsync is how a loop device hands on a flush.
func (s *server) Fsync(<-chan struct{}, *fuse.FsyncIn) fuse.Status {
	s.do(Op{Kind: Flush})
	return fuse.OK
}

// Flush is no flush: it comes with each close of a descriptor.
func (s *server) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (s *server) Release(<-chan struct{}, *fuse.ReleaseIn) {}

func (s *server) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	*out = fuse.StatfsOut{Blocks: uint64(s.began.Size()) / Block, Bsize: Block, Frsize: Block, NameLen: 255}
	return fuse.OK
}

func (s *server) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.OK }

func (s *server) Forget(uint64, uint64) {}

var _ fuse.RawFileSystem = (*server)(nil)
