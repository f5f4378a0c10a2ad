package statefs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Sight is what exists for one operation at the moment of a look.
type Sight struct {
	// States are the markers that are there: one for a live operation, none for an ended one, more after somebody made a second
	// one by hand.
	States []State
	// Inodes are the inode numbers of these markers. A rename keeps them, so they tell whose a marker was.
	Inodes []uint64
	// Asks are the requests that are there.
	Asks []Ask
	// Odd are names that should be a marker or a request and are no regular file.
	Odd []string
}

// Look looks by name for every marker and request of an operation. Each name is asked for by itself and never followed, so what
// it reports existed; what it misses may have been renamed meanwhile, which is why one look never proves an absence.
func (t *Tree) Look(id ID) (Sight, error) { return t.LookFor(id, AllNames) }

// LookFor is Look for some of the names only.
func (t *Tree) LookFor(id ID, names Names) (Sight, error) {
	var sight Sight
	// One call for all names: this is the hottest code of the daemon.
	err := withDescriptor(t.raw, func(fd int) error {
		for i, state := range liveStates {
			if names&(1<<i) == 0 {
				continue
			}
			name := MarkerName(id, state)
			regular, exists, inode, err := statAt(fd, name)
			switch {
			case err != nil:
				return err
			case regular:
				sight.States, sight.Inodes = append(sight.States, state), append(sight.Inodes, inode)
			case exists:
				sight.Odd = append(sight.Odd, name)
			}
		}
		for i, ask := range asks {
			if names&(1<<(len(liveStates)+i)) == 0 {
				continue
			}
			name := RequestName(id, ask)
			regular, exists, _, err := statAt(fd, name)
			switch {
			case err != nil:
				return err
			case regular:
				sight.Asks = append(sight.Asks, ask)
			case exists:
				sight.Odd = append(sight.Odd, name)
			}
		}
		return nil
	})
	return sight, err
}

// maxLooks bounds how often a marker is looked for that somebody keeps renaming.
const maxLooks = 50

// markers looks until it sees a marker, or until three looks saw none and the folder did not change under the last one. A single
// look can miss a marker that is renamed meanwhile, from a name it has not come to yet to one that it has passed. Where the record says the end, the marker
// only goes, and one look after that tells: a folder in which much happens does not stand still for long.
func (t *Tree) markers(id ID) ([]State, error) {
	sight, err := t.LookFor(id, allMarkers)
	if err != nil || len(sight.States) > 0 {
		return sight.States, err
	}
	if rec, err := t.EndOf(id); err == nil && rec != nil {
		return nil, nil
	}
	for n := range maxLooks {
		before, err := t.folderChanged()
		if err != nil {
			return nil, err
		}
		sight, err := t.LookFor(id, allMarkers)
		if err != nil || len(sight.States) > 0 {
			return sight.States, err
		}
		after, err := t.folderChanged()
		if err != nil {
			return nil, err
		}
		if n >= 1 && before == after {
			break
		}
	}
	return nil, nil
}

// folderChanged returns when a name in jobs/ last changed.
func (t *Tree) folderChanged() (unix.Timespec, error) {
	var st unix.Stat_t
	if err := withDescriptor(t.raw, func(fd int) error { return unix.Fstat(fd, &st) }); err != nil {
		return unix.Timespec{}, fmt.Errorf("look at %s: %w", t.JobsDir(), err)
	}
	return st.Mtim, nil
}

// changed returns when a file of jobs/ was last written, renamed or linked.
func (t *Tree) changed(name string) (time.Time, error) {
	var st unix.Stat_t
	err := withDescriptor(t.raw, func(fd int) error { return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return time.Unix(st.Ctim.Unix()), err
}

// stat asks for one name in jobs/.
func (t *Tree) stat(name string) (regular, exists bool, err error) {
	err = withDescriptor(t.raw, func(fd int) error {
		regular, exists, _, err = statAt(fd, name)
		return err
	})
	return regular, exists, err
}

// statAt asks for one name in a folder, without following it. The name is built from an ID, so it holds nothing that could lead
// out.
func statAt(fd int, name string) (regular, exists bool, inode uint64, err error) {
	var st unix.Stat_t
	for {
		err = unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case err == nil:
		return st.Mode&unix.S_IFMT == unix.S_IFREG, true, st.Ino, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, false, 0, nil
	}
	return false, false, 0, fmt.Errorf("look for %s: %w", name, err)
}

// withDescriptor calls with a descriptor that nobody closes meanwhile, again when a signal cut it short.
func withDescriptor(raw syscall.RawConn, call func(fd int) error) error {
	var result error
	err := raw.Control(func(fd uintptr) {
		for {
			if result = call(int(fd)); !errors.Is(result, unix.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return result
}

// Entry is one name in jobs/ that belongs to an operation.
type Entry struct {
	Name
	// File is the name as it stands in the folder.
	File string
}

// Listing is what jobs/ held during a listing. A file that was renamed while it was made may be missing or be there under both
// names.
type Listing struct {
	Markers  []Entry
	Requests []Entry
	// Unknown begin with an ID and end in a suffix without a meaning.
	Unknown []Entry
	// Odd are names of operations that are no regular files: links, folders, fifos, sockets, devices. They are never opened.
	Odd []string
	// Strange counts the names that belong to no operation at all.
	Strange int
}

// List lists jobs/. It reads the folder in blocks, unsorted, and opens no file. Where this process may open no more files it needs none.
func (t *Tree) List() (Listing, error) {
	folder, err := t.jobs.Open(".")
	if OutOfFiles(err) {
		// The descriptor that is always open has one position for all who list by it.
		t.listing.Lock()
		defer t.listing.Unlock()
		if _, err := t.folder.Seek(0, io.SeekStart); err != nil {
			return Listing{}, fmt.Errorf("list %s: %w", t.JobsDir(), err)
		}
		return t.listBy(t.folder)
	}
	if err != nil {
		return Listing{}, fmt.Errorf("list %s: %w", t.JobsDir(), err)
	}
	defer func() { _ = folder.Close() }() // opened for reading
	return t.listBy(folder)
}

func (t *Tree) listBy(folder *os.File) (listing Listing, err error) {
	for {
		block, err := folder.ReadDir(4096)
		for _, entry := range block {
			listing.add(entry)
		}
		if errors.Is(err, io.EOF) {
			t.odd.Store(uint64(len(listing.Odd) + len(listing.Unknown) + listing.Strange))
			return listing, nil
		}
		if err != nil {
			return listing, fmt.Errorf("list %s: %w", t.JobsDir(), err)
		}
	}
}

// Ignored returns how many names in jobs/ the last listing passed over because they are nothing of ours.
func (t *Tree) Ignored() uint64 { return t.odd.Load() }

func (l *Listing) add(entry os.DirEntry) {
	name, ok := ParseName(entry.Name())
	e := Entry{name, entry.Name()}
	switch {
	case !ok:
		l.Strange++
	case !entry.Type().IsRegular():
		l.Odd = append(l.Odd, e.File)
	case name.State != "":
		l.Markers = append(l.Markers, e)
	case name.Ask != "":
		l.Requests = append(l.Requests, e)
	default:
		l.Unknown = append(l.Unknown, e)
	}
}

// IDs returns every ID of which the listing holds anything, with the names that it holds; with all where it holds one without a meaning.
func (l *Listing) IDs() map[ID]Names {
	ids := make(map[ID]Names, len(l.Markers))
	for _, group := range [][]Entry{l.Markers, l.Requests, l.Unknown} {
		for _, e := range group {
			ids[e.ID] |= e.Bit()
		}
	}
	for _, file := range l.Odd {
		if name, ok := ParseName(file); ok && ids[name.ID] != 0 {
			ids[name.ID] = AllNames
		}
	}
	return ids
}

// Stamp reads the content of a marker or request. The error wraps fs.ErrNotExist when it is gone and fs.ErrPermission when it
// may not be read.
func (t *Tree) Stamp(file string) (Stamp, error) { return t.stampIn(t.jobs, file) }

func (t *Tree) stampIn(root *os.Root, file string) (Stamp, error) {
	f, info, err := openRegular(root, file)
	if err != nil {
		return Stamp{}, fmt.Errorf("read %s: %w", file, err)
	}
	defer func() { _ = f.Close() }() // opened for reading
	data, err := io.ReadAll(io.LimitReader(f, stampLimit))
	if err != nil {
		return Stamp{}, fmt.Errorf("read %s: %w", file, err)
	}
	return parseStamp(data, info.ModTime()), nil
}

// stampLimit bounds what is read of a state or request file.
const stampLimit = 1 << 20
