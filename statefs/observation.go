package statefs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jobdir/jobdir/statefs/files"
	"github.com/jobdir/jobdir/statefs/machine"
)

// Observation is the set of files that exist for one operation in jobs/.
type Observation struct {
	// States are the states of the existing markers: one for a live operation, none for a finished
	// one, several if a person made another marker.
	States []State
	// Inodes are the inode numbers of these markers. A rename keeps the inode, so it identifies a
	// marker.
	Inodes []uint64
	// Requests are the pending requests.
	Requests []Action
	// Irregular are names of markers or requests that are not regular files.
	Irregular []string
}

// jobsFolder is jobs/: the markers and the requests that are not taken yet. It tells what is there, and removes what a
// later request replaces.
type jobsFolder struct {
	*storage
	jobs     *os.Root
	folder   *os.File    // jobs/, for calls that take a descriptor
	opened   fs.FileInfo // of folder
	listing  sync.Mutex  // held while folder is listed
	jobsSync *files.Folder
	ignored  atomic.Uint64
}

// ObserveAll checks every marker and request name of an operation, each with its own stat and
// without following links. Every name it reports existed. A name it misses may have been renamed
// during the call, so a single observation never proves that a marker is absent.
func (j *jobsFolder) ObserveAll(id ID) (Observation, error) { return j.Observe(id, AllNames) }

// Observe is ObserveAll for some of the names.
func (j *jobsFolder) Observe(id ID, names NameSet) (Observation, error) {
	var sight Observation
	// One descriptor for all names: this is the hottest code of the daemon.
	err := files.WithDescriptor(j.folder, func(fd int) error {
		for i, kind := range nameKinds {
			if names&(1<<i) == 0 {
				continue
			}
			name := id.text + kind.suffix
			regular, exists, inode, err := statAt(fd, name)
			switch {
			case err != nil:
				return err
			case exists && !regular:
				sight.Irregular = append(sight.Irregular, name)
			case exists && kind.State != "":
				sight.States, sight.Inodes = append(sight.States, kind.State), append(sight.Inodes, inode)
			case exists:
				sight.Requests = append(sight.Requests, kind.Action)
			}
		}
		return nil
	})
	return sight, err
}

// HasMarker reports whether an operation has the marker of a state.
func (j *jobsFolder) HasMarker(id ID, state State) bool {
	sight, err := j.Observe(id, MarkerBit(state))
	return err == nil && len(sight.States) == 1
}

// nameChangedAt returns when a file of jobs/ was last written, renamed or linked.
func (j *jobsFolder) nameChangedAt(name string) (time.Time, error) {
	var st unix.Stat_t
	err := files.WithDescriptor(j.folder, func(fd int) error { return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return time.Unix(st.Ctim.Unix()), err
}

// statAt checks one name in a folder without following a link. The name is built from an ID, so it
// cannot lead out of the folder.
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
	return false, false, 0, fmt.Errorf("find %s: %w", name, err)
}

// Entry is one name in jobs/ that belongs to an operation.
type Entry struct {
	Name
	// File is the name of the file in the folder.
	File string
}

// Listing is the content of jobs/ during a listing. A file that was renamed during it may be
// missing or appear under both names.
type Listing struct {
	Markers  []Entry
	Requests []Entry
	// Unknown begin with an ID and end in an unknown suffix.
	Unknown []Entry
	// Irregular are names of operations that are not regular files: links, folders, fifos, sockets,
	// devices. They are never opened.
	Irregular []string
	// Stray counts the names that belong to no operation.
	Stray int
}

// List lists jobs/. It reads the folder in blocks, unsorted, and opens no file in it. If the
// process has no free descriptor, it uses a reserved one.
func (j *jobsFolder) List() (Listing, error) {
	// Not by j.jobs: a folder that a Root has opened costs a stat for each name.
	var folder *os.File
	err := files.WithDescriptor(j.folder, func(fd int) error {
		listed, err := files.OpenDescriptor(fd, ".", j.JobsDir(), unix.O_DIRECTORY, 0)
		if err == nil {
			folder = os.NewFile(uintptr(listed), j.JobsDir())
		}
		return err
	})
	if machine.OutOfFiles(err) {
		// The descriptor that is always open has one position, shared by all callers.
		j.listing.Lock()
		defer j.listing.Unlock()
		if _, err := j.folder.Seek(0, io.SeekStart); err != nil {
			return Listing{}, fmt.Errorf("list %s: %w", j.JobsDir(), err)
		}
		return j.listBy(j.folder)
	}
	if err != nil {
		return Listing{}, fmt.Errorf("list %s: %w", j.JobsDir(), err)
	}
	defer func() { _ = folder.Close() }() // opened for reading
	return j.listBy(folder)
}

func (j *jobsFolder) listBy(folder *os.File) (listing Listing, err error) {
	for {
		block, err := folder.ReadDir(4096)
		for _, entry := range block {
			listing.add(entry)
		}
		if errors.Is(err, io.EOF) {
			j.ignored.Store(uint64(len(listing.Irregular) + len(listing.Unknown) + listing.Stray))
			return listing, nil
		}
		if err != nil {
			return listing, fmt.Errorf("list %s: %w", j.JobsDir(), err)
		}
	}
}

// Ignored returns the number of names in jobs/ that the last listing ignored because they are not
// jobdir's.
func (j *jobsFolder) Ignored() uint64 { return j.ignored.Load() }

func (l *Listing) add(entry os.DirEntry) {
	name, ok := ParseName(entry.Name())
	e := Entry{name, entry.Name()}
	switch {
	case !ok:
		l.Stray++
	case !entry.Type().IsRegular():
		l.Irregular = append(l.Irregular, e.File)
	case name.State != "":
		l.Markers = append(l.Markers, e)
	case name.Action != "":
		l.Requests = append(l.Requests, e)
	default:
		l.Unknown = append(l.Unknown, e)
	}
}

// IDs returns every ID in the listing with the names found for it, or AllNames if one of them has
// an unknown suffix or, beside another name, is irregular.
func (l *Listing) IDs() map[ID]NameSet {
	ids := make(map[ID]NameSet, len(l.Markers))
	for _, group := range [][]Entry{l.Markers, l.Requests, l.Unknown} {
		for _, e := range group {
			ids[e.ID] |= e.Bit()
		}
	}
	for _, file := range l.Irregular {
		if name, ok := ParseName(file); ok && ids[name.ID] != 0 {
			ids[name.ID] = AllNames
		}
	}
	return ids
}

// Identify returns the identity of a file in jobs/, and how many names (links) it has. The error
// wraps fs.ErrNotExist if the file does not exist.
func (j *jobsFolder) Identify(file string) (identity files.Identity, names uint64, err error) {
	if path.Base(file) != file || !filepath.IsLocal(file) || file == "." {
		return files.Identity{}, 0, fmt.Errorf("identify %q: %w", file, fs.ErrInvalid)
	}
	err = files.WithDescriptor(j.folder, func(fd int) error {
		identity, names, err = files.Identify(fd, file)
		return err
	})
	if err != nil {
		return files.Identity{}, 0, fmt.Errorf("identify %s: %w", file, err)
	}
	return identity, names, nil
}

// Stamp reads the content of a marker or request. The error wraps fs.ErrNotExist if it is gone and
// fs.ErrPermission if it may not be read.
func (j *jobsFolder) Stamp(file string) (Stamp, error) { return readStamp(j.jobs, file) }

func readStamp(root *os.Root, file string) (Stamp, error) {
	f, info, err := files.OpenRegularIn(root, file)
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

// requestStamp reads the content of a request. A request that may not be read, because another user
// created it under a strict umask, counts by its modification time: the name is enough.
func (s *storage) requestStamp(root *os.Root, file string) (Stamp, error) {
	info, err := root.Lstat(file)
	if err != nil {
		return Stamp{}, fmt.Errorf("read %s: %w", file, err)
	}
	stamp, err := readStamp(root, file)
	if errors.Is(err, fs.ErrPermission) && info.Mode().IsRegular() {
		stamp, err = Stamp{At: info.ModTime()}, nil
	}
	return stamp.lastRequested(info.ModTime(), s.options.Now()), err
}

// ownerName returns the name of the user who owns a file, the numeric UID if the user has no name,
// and "" if the owner is unknown.
func ownerName(root *os.Root, file string) string {
	info, err := root.Lstat(file)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	uid := strconv.FormatUint(uint64(stat.Uid), 10)
	if known, err := user.LookupId(uid); err == nil {
		return known.Username
	}
	return uid
}

// stampLimit bounds how much of a state or request file is read.
const stampLimit = 1 << 20

// JobsFolderReplacedError reports that jobs/ is no longer the folder that was opened: it was moved,
// replaced or mounted over. Files written by path go to the wrong folder then, so nothing is
// acknowledged.
type JobsFolderReplacedError struct {
	Dir string
	Err error // the failed lookup, nil if there is another folder
}

func (e *JobsFolderReplacedError) Error() string {
	const advice = "put the folder that was there back, or unmount what was mounted on it, then start the daemon again"
	if e.Err != nil {
		return fmt.Sprintf("folder %s is gone (%v): %s", e.Dir, e.Err, advice)
	}
	return fmt.Sprintf("folder %s was replaced by another one: %s", e.Dir, advice)
}

func (e *JobsFolderReplacedError) Unwrap() error { return e.Err }

// checkJobsFolder checks with one system call that jobs/ is still the folder that was opened. The
// error is a *JobsFolderReplacedError.
func (j *jobsFolder) checkJobsFolder() error {
	named, err := os.Stat(j.JobsDir())
	if err != nil || !os.SameFile(j.opened, named) {
		return &JobsFolderReplacedError{j.JobsDir(), err}
	}
	return nil
}

// jobsFolderCause returns a *JobsFolderReplacedError instead of err if jobs/ was replaced.
func (j *jobsFolder) jobsFolderCause(err error) error {
	if err == nil {
		return nil
	}
	if displaced, ok := errors.AsType[*JobsFolderReplacedError](j.checkJobsFolder()); ok {
		return displaced
	}
	return err
}
