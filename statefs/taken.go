package statefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync/atomic"

	"github.com/jobdir/jobdir/statefs/files"
)

// Requests takes requests from jobs/ into taken/, where each stays until its effect is durable.
type Requests struct {
	*jobsFolder
	folder *files.Folder // taken/
	// changed counts taken and dropped requests; settled is the value of changed up to which taken/
	// is synced.
	changed, settled atomic.Uint64
}

// TakenRequest is a request that the daemon is carrying out. It stays in taken/ until its effect is
// durable, and is carried out again after a crash.
type TakenRequest struct {
	ID     ID
	Action Action
	At     Stamp // ordered by Stamp.Compare
	// By is the owner of the file, "" if unknown.
	By   string
	file string
}

// Take moves a request into taken/. It returns false if the request is gone, that is, withdrawn.
func (r *Requests) Take(id ID, ask Action) (TakenRequest, bool, error) {
	name := RequestName(id, ask)
	stamp, err := r.requestStamp(r.jobs, name)
	by := ""
	if ask.Spec().OnStep {
		by = ownerName(r.jobs, name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return TakenRequest{}, false, nil
	}
	if err != nil {
		return TakenRequest{}, false, err
	}
	err = os.Rename(filepath.Join(r.JobsDir(), name), filepath.Join(r.dir, takenDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := r.root.Lstat(takenDir); err != nil {
			return TakenRequest{}, false, fmt.Errorf("take %s: %w", name, &FolderGoneError{filepath.Join(r.dir, takenDir)})
		}
		return TakenRequest{}, false, nil
	}
	if err != nil {
		return TakenRequest{}, false, fmt.Errorf("take %s: %w", name, err)
	}
	r.changed.Add(1)
	// A touch between the stat and the rename repeats the request; the modification time of the
	// file in taken/ is its only trace.
	if info, err := r.root.Lstat(path.Join(takenDir, name)); err == nil {
		stamp = stamp.lastRequested(info.ModTime(), r.options.Now())
	}
	return TakenRequest{ID: id, Action: ask, At: stamp, By: by, file: name}, true, r.removeTakenLink(name)
}

// removeTakenLink removes a request that is a hard link to the one in taken/: a rename between two
// links of one file does nothing (see requestOnFullDisk).
func (r *Requests) removeTakenLink(name string) error {
	left, err := r.jobs.Lstat(name)
	if err != nil {
		return nil //nolint:nilerr // it is gone, as it should be
	}
	taken, err := r.root.Lstat(path.Join(takenDir, name))
	if err != nil || !os.SameFile(left, taken) {
		return nil //nolint:nilerr // the request was made again
	}
	if err := r.jobs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take %s: %w", name, err)
	}
	return nil
}

// Drop removes a taken request whose effect is durable, or that has none.
func (r *Requests) Drop(taken TakenRequest) error {
	if taken.file == "" {
		return nil // the removal of a marker is a request without a file
	}
	// By its path, which needs no descriptor: the request has had its effect and must not be
	// carried out again.
	err := os.Remove(filepath.Join(r.dir, takenDir, taken.file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop the request %s: %w", taken.file, err)
	}
	r.changed.Add(1)
	return nil
}

// Restore moves every request that an earlier daemon had taken back into jobs/, unless the
// same or the opposite request was made since. It returns how many it moved.
func (r *Requests) Restore() (int, error) {
	entries, err := r.readFolder(takenDir)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", takenDir, err)
	}
	var done []string
	back := 0
	for _, entry := range entries {
		if _, submission := SubmissionName(entry.Name()); submission || isBatch(entry) {
			continue
		}
		name, ok := ParseName(entry.Name())
		if !ok || name.Action == "" || !entry.Type().IsRegular() {
			if err := r.corrupt.move(path.Join(takenDir, entry.Name()), "not a request"); err != nil {
				return back, err
			}
			continue
		}
		linked, err := r.restore(entry.Name(), name)
		if err != nil {
			return back, fmt.Errorf("put back the request %s: %w", entry.Name(), err)
		}
		if linked {
			back++
		}
		done = append(done, entry.Name())
	}
	// The names in jobs/ are durable before those in taken/ are removed: after a power cut a
	// request has one of them or both.
	if err := r.jobsSync.Sync(); err != nil {
		return back, err
	}
	for _, name := range done {
		if err := r.root.Remove(path.Join(takenDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return back, fmt.Errorf("put back the request %s: %w", name, err)
		}
	}
	if len(done) == 0 {
		return 0, nil
	}
	// The removals are durable before the requests are taken again: after a power cut, an old removal
	// must not remove the new name, which is the only one.
	return back, r.folder.Sync()
}

// restore links one taken request into jobs/. It returns false if a newer request replaces it.
func (r *Requests) restore(file string, name Name) (bool, error) {
	if other := name.Action.Spec().Opposite; other != "" {
		newer, err := r.requestStamp(r.jobs, RequestName(name.ID, other))
		if err == nil {
			taken, err := r.requestStamp(r.root, path.Join(takenDir, file))
			if err == nil && newer.Compare(taken) >= 0 {
				return false, nil
			}
		}
		// A missing or unreadable opposite replaces nothing.
	}
	err := r.root.Link(path.Join(takenDir, file), path.Join(jobsDir, file))
	if errors.Is(err, fs.ErrPermission) {
		// Linux does not allow a hard link to another user's file that the process may not write
		// (fs.protected_hardlinks). It allows a rename, which at worst replaces the same request.
		err = r.root.Rename(path.Join(takenDir, file), path.Join(jobsDir, file))
	}
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// sync syncs taken/ if a request was taken or dropped since the last sync.
func (r *Requests) sync() error {
	changed := r.changed.Load()
	if r.settled.Load() >= changed {
		return nil
	}
	if err := r.folder.Sync(); err != nil {
		return err
	}
	for {
		settled := r.settled.Load()
		if settled >= changed || r.settled.CompareAndSwap(settled, changed) {
			return nil
		}
	}
}
