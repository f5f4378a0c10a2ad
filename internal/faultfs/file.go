package faultfs

import (
	"maps"
	"slices"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// listed is a name of a folder at the time when the folder was opened.
type listed struct {
	name string
	ino  uint64
	mode uint32
}

func (s *server) Create(_ <-chan struct{}, input *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.create(input.NodeId, name, typeFile|input.Mode&0o7777, nil, &out.EntryOut)
}

func (s *server) Open(_ <-chan struct{}, input *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.cut:
		return fuse.EIO
	case s.live[input.NodeId] == nil:
		return fuse.ENOENT
	case input.Flags&unix.O_TRUNC != 0:
		return fuse.Status(s.do(Op{Kind: Truncate, Node: input.NodeId}))
	}
	return fuse.OK
}

func (s *server) Read(_ <-chan struct{}, input *fuse.ReadIn, _ []byte) (fuse.ReadResult, fuse.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.live[input.NodeId]
	if s.cut || n == nil {
		return nil, fuse.EIO
	}
	size := uint64(len(n.data))
	from := min(input.Offset, size)
	return fuse.ReadResultData(slices.Clone(n.data[from:min(from+uint64(input.Size), size)])), fuse.OK
}

func (s *server) Write(_ <-chan struct{}, input *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[input.NodeId] == nil {
		return 0, fuse.EIO
	}
	if errno := s.do(Op{Kind: Write, Node: input.NodeId, Offset: int64(input.Offset), Data: data}); errno != 0 {
		return 0, fuse.Status(errno)
	}
	return uint32(len(data)), fuse.OK
}

func (s *server) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (s *server) Release(<-chan struct{}, *fuse.ReleaseIn) {}

func (s *server) Fsync(_ <-chan struct{}, input *fuse.FsyncIn) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fuse.Status(s.do(Op{Kind: Sync, Node: input.NodeId}))
}

func (s *server) FsyncDir(_ <-chan struct{}, input *fuse.FsyncIn) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fuse.Status(s.do(Op{Kind: SyncDir, Node: input.NodeId}))
}

func (s *server) OpenDir(_ <-chan struct{}, input *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		return fuse.EIO
	}
	s.handles++
	out.Fh = s.handles
	s.listing[out.Fh] = nil
	_ = input
	return fuse.OK
}

func (s *server) ReadDir(_ <-chan struct{}, input *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir := s.live[input.NodeId]
	if s.cut || dir == nil {
		return fuse.EIO
	}
	if input.Offset == 0 {
		s.listing[input.Fh] = s.list(input.NodeId, dir)
	}
	all := s.listing[input.Fh]
	for i := input.Offset; i < uint64(len(all)); i++ {
		e := all[i]
		if !out.AddDirEntry(fuse.DirEntry{Mode: e.mode, Name: e.name, Ino: e.ino, Off: i + 1}) {
			break
		}
	}
	return fuse.OK
}

func (s *server) list(ino uint64, dir *node) []listed {
	all := []listed{{".", ino, dir.mode}, {"..", ino, dir.mode}}
	for _, name := range slices.Sorted(maps.Keys(dir.entries)) {
		below := dir.entries[name]
		all = append(all, listed{name, below, s.live[below].mode})
	}
	return all
}

func (s *server) ReleaseDir(input *fuse.ReleaseIn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listing, input.Fh)
}
